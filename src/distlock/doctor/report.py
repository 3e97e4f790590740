"""The whole examination, as plain data. The keys of the view are a promise, as in lock_view."""

from __future__ import annotations

import os
import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from distlock.backends import open_backend
from distlock.backends.base import Client, DistlockError, Environment, Refused, Unavailable
from distlock.clock import boottime
from distlock.durations import format_duration
from distlock.leasing import user_name
from distlock.requirement import check_class
from distlock.state import state_directory

from . import configuration, host, ttl
from .catalogue import CLASS_REFUSED, CLOCK_OFFSET, NOT_ALLOWED, SCRATCH_BUSY, of_server
from .measures import round_trips, watch_pauses
from .records import renewals_on_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.backend_choice import Chosen
    from distlock.backends.base import Backend
    from distlock.backends.probe import Probe
    from distlock.config import Config
    from distlock.lock_view import Plain

    from .catalogue import Noted
    from .measures import Pauses, Trips
    from .records import Records

VERSION = 1
_WATCHED = 1.5
_TIMEOUT = 2.5
"""Seconds for each question; a whole examination stays near ten."""
_CLOCK_OFFSET = 2.0
"""Seconds: what people are shown is rounded to one."""


class Report(NamedTuple):
    chosen: Chosen
    pauses: Pauses
    probe: Probe | None
    first_answer: float | None
    """Seconds that the probe took, a new connection included."""
    trips: Trips | None
    records: Records | None
    recovery: float | None
    proposal: ttl.Proposal
    found: tuple[Noted, ...]
    failure: DistlockError | None
    """What kept the backend from being looked at."""

    @property
    def verdict(self) -> str:
        if self.failure is not None:
            return "refused" if isinstance(self.failure, Refused) else "unreachable"
        return "warnings" if any(one.level == "warning" for one in self.found) else "fine"


class _Server(NamedTuple):
    """What the backend says."""

    probe: Probe | None = None
    first_answer: float | None = None
    trips: Trips | None = None
    found: tuple[Noted, ...] = ()
    failure: DistlockError | None = None


def examine(config: Config, chosen: Chosen, recovery: float | None) -> Report:
    """Takes up to about ten seconds. Raises ConfigurationError."""
    directory = host.StateDirectory(state_directory)
    pauses = watch_pauses(_WATCHED)
    found = [*configuration.findings(config, chosen), *directory.findings()]
    found += [*host.pause_findings(pauses), *host.library_findings()]
    records = renewals_on_record(chosen.shown) if directory.answers else None
    server = _ask(config, chosen)
    proposal = ttl.propose(server.trips, pauses, records, server.probe, recovery)
    found += server.found
    found += ttl.findings(proposal, configuration.configured_ttls(config, chosen), server.probe, recovery)
    return Report(
        chosen,
        pauses,
        server.probe,
        server.first_answer,
        server.trips,
        records,
        recovery,
        proposal,
        tuple(found),
        server.failure,
    )


def _ask(config: Config, chosen: Chosen) -> _Server:
    """As far as it gets."""
    server = _Server()
    try:
        with closing(open_backend(chosen.url, Environment(boottime, state_directory, chosen.password))) as engine:
            begun = boottime()
            probe = engine.probe(_TIMEOUT)
            server = server._replace(probe=probe, first_answer=boottime() - begun, found=tuple(_of_probe(probe)))
            trips = round_trips(engine, _client(), boottime)
            server = server._replace(trips=trips, found=(*server.found, *_of_trips(trips)))
            return server._replace(found=(*server.found, *_of_class(engine, config, chosen)))
    except (Unavailable, Refused) as error:
        return server._replace(failure=error)


def _client() -> Client:
    owner = os.urandom(16).hex()
    return Client(owner, os.uname().nodename, os.getpid(), user_name(), "distlock doctor", None, time.time())


def _of_probe(probe: Probe) -> Iterator[Noted]:
    yield from map(of_server, probe.findings)
    offset = probe.clock_offset
    if offset is not None and abs(offset) > _CLOCK_OFFSET:
        which = "ahead of" if offset > 0 else "behind"
        yield CLOCK_OFFSET.found(f"the server's clock is {format_duration(round(abs(offset), 1))} {which} ours")


def _of_trips(trips: Trips) -> Iterator[Noted]:
    if trips.refusal is not None:
        yield NOT_ALLOWED.found(trips.refusal)
    elif trips.of == "reads":
        yield SCRATCH_BUSY.found(f"{trips.number} reads were measured")


def _of_class(engine: Backend, config: Config, chosen: Chosen) -> Iterator[Noted]:
    asked = config.setting("require", None)
    if "correctness" in (chosen.require, asked.value if asked else None):
        try:
            check_class(engine, chosen.shown, "correctness", _TIMEOUT)
        except Refused as error:
            yield CLASS_REFUSED.found(str(error))


def report_view(report: Report) -> dict[str, Plain]:
    probe, trips, proposal = report.probe, report.trips, report.proposal
    return {
        "version": VERSION,
        "backend": report.chosen.shown,
        "chosen_by": report.chosen.origin or None,
        "verdict": report.verdict,
        "problem": None if report.failure is None else str(report.failure),
        "server": probe.server if probe else None,
        "clock_offset_seconds": _rounded(probe.clock_offset if probe else None),
        "first_answer_seconds": _rounded(report.first_answer),
        "round_trips": trips
        and {
            "of": trips.of,
            "count": trips.number,
            "median_seconds": _rounded(trips.median),
            "longest_seconds": _rounded(trips.longest),
            "acquire_seconds": _rounded(trips.acquire),
        },
        "pauses": {
            "watched_seconds": _rounded(report.pauses.watched),
            "longest_seconds": _rounded(report.pauses.longest),
        },
        "renewals_on_record": report.records
        and {
            "runs": report.records.runs,
            "since_seconds": report.records.since,
            "longest_seconds": _rounded(report.records.longest),
        },
        "ttl": {
            "proposed_seconds": proposal.ttl,
            "shortest_seconds": proposal.shortest,
            "server_shortest_seconds": probe.shortest_ttl if probe else None,
            "server_longest_seconds": probe.longest_ttl if probe else None,
            "survives_seconds": _rounded(proposal.survives),
            "recovered_within_seconds": _rounded(proposal.recovered_within),
            "recovery_seconds": report.recovery,
            "meets_recovery": proposal.meets_recovery,
            "reasons": list(proposal.reasons),
        },
        "findings": [finding_view(one) for one in report.found],
    }


def finding_view(noted: Noted) -> dict[str, Plain]:
    return {"key": noted.key, "about": noted.about, "level": noted.level, **noted.finding._asdict()}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
