"""Which TTL fits: from what was measured, what the server grants, and how soon a dead host's locks have to be free.

A renewal is due after a third of the TTL; from then until the command is told to stop is what there is for it to be
answered in (``slack``). In that, a renewal has to be able to fail once, with every round trip and every pause ten times
as long as the worst that was seen in the few seconds of a doctor, or twice as long as the worst on record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from distlock.deadline import SHORTEST_TTL, default_grace, hard_deadline
from distlock.durations import format_duration

from .catalogue import RECOVERY_UNMET, TTL_CUT, TTL_LONG, TTL_RECOVERY, TTL_SHORT, TTL_STRETCHED
from .measures import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from distlock.backends.probe import Probe

    from .catalogue import Noted
    from .measures import Pauses, Trips
    from .records import Records

DEFAULT_TTL = 30.0
LONGEST_SENSIBLE = 600.0
NOTICED = 2.0
"""Seconds from the end of a dead holder's lease until a waiter has the lock, on the slowest engine (a tick of
ZooKeeper's)."""
_TRIES = 2
_TIMES_SEEN = 10
_TIMES_ON_RECORD = 2


class Configured(NamedTuple):
    ttl: float
    where: str
    """The file and table, or that it is the default."""


class Proposal(NamedTuple):
    ttl: float
    shortest: float
    """The shortest that what was measured allows for."""
    survives: float
    """Seconds for which the backend may be away, or the machine stand still, without a job being stopped."""
    recovered_within: float
    """Seconds after a holder's host has died."""
    meets_recovery: bool
    reasons: tuple[str, ...]


def slack(ttl: float) -> float:
    """Seconds from a renewal being due until the stop signal, with the default grace."""
    return hard_deadline(0.0, ttl) - default_grace(ttl) - ttl / 3


def propose(
    trips: Trips | None, pauses: Pauses, records: Records | None, probe: Probe | None, recovery: float | None
) -> Proposal:
    need, reasons = _need(trips, pauses, records)
    shortest = _shortest(need)
    least, most = shortest, LONGEST_SENSIBLE
    reasons.append(
        f"the shortest TTL that leaves this between a due renewal and the stop signal is {format_duration(shortest)}"
    )
    if probe:
        least = max(least, probe.shortest_ttl or 0.0)
        most = min(most, probe.longest_ttl or most)
        if bounds := _bounds(probe):
            reasons.append(f"the server grants {bounds}")
    if recovery is None:
        ttl = max(least, DEFAULT_TTL)
        reasons.append(f"nobody asked for a sooner recovery (--recovery), so it is at least {DEFAULT_TTL:g}s")
    else:
        ttl = max(least, float(int(recovery - NOTICED)))
        reasons.append(
            f"a host that dies keeps its locks for the TTL, and waiters notice within {format_duration(NOTICED)}: for a"
            f" recovery in {format_duration(recovery)} it is at most {format_duration(max(0.0, recovery - NOTICED))}"
        )
    ttl = min(ttl, most)
    within = ttl + NOTICED
    reasons.append(
        f"with {format_duration(ttl)} a backend that is away, or a machine that stands still, for"
        f" {format_duration(round(slack(ttl), 1))} after a due renewal stops no job"
    )
    return Proposal(ttl, shortest, slack(ttl), within, recovery is None or within <= recovery, tuple(reasons))


def _bounds(probe: Probe) -> str:
    """Those that anybody would come near to."""
    told = []
    if probe.shortest_ttl and probe.shortest_ttl > SHORTEST_TTL:
        told.append(f"at least {format_duration(probe.shortest_ttl)}")
    if probe.longest_ttl and probe.longest_ttl < LONGEST_SENSIBLE:
        told.append(f"at most {format_duration(probe.longest_ttl)}")
    return " and ".join(told)


def _need(trips: Trips | None, pauses: Pauses, records: Records | None) -> tuple[float, list[str]]:
    """Seconds, and how they came about."""
    need = _TIMES_SEEN * (pauses.longest + (_TRIES * trips.longest if trips else 0.0))
    seen = f"the slowest round trip took {shown(trips.longest)} and " if trips else ""
    reasons: list[str] = []
    reasons.append(
        f"{seen}the longest pause {shown(pauses.longest)}: {_TIMES_SEEN} times as long, and a renewal that fails once,"
        f" need {shown(need)}"
    )
    if records:
        recorded = _TRIES * _TIMES_ON_RECORD * records.longest
        reasons.append(
            f"the slowest renewal on record ({records.runs} runs in {format_duration(records.since)}) took"
            f" {shown(records.longest)}: {_TIMES_ON_RECORD} times as long, and one that fails once, need"
            f" {shown(recorded)}"
        )
        need = max(need, recorded)
    return need, reasons


def _shortest(need: float) -> float:
    """Whole seconds."""
    ttl = SHORTEST_TTL
    while slack(ttl) < need and ttl < LONGEST_SENSIBLE:
        ttl += 1.0
    return ttl


def findings(
    proposal: Proposal, configured: Iterable[Configured], probe: Probe | None, recovery: float | None
) -> Iterator[Noted]:
    if recovery is not None and not proposal.meets_recovery:
        yield RECOVERY_UNMET.found(
            f"--recovery {format_duration(recovery)}; at best it is {format_duration(proposal.recovered_within)}, with"
            f" a TTL of {format_duration(proposal.ttl)}"
        )
    for ttl, where in configured:
        evidence = f"{format_duration(ttl)} ({where})"
        if ttl < SHORTEST_TTL:
            yield TTL_SHORT.found(f"{evidence}; run refuses less than {format_duration(SHORTEST_TTL)}")
        elif ttl < proposal.shortest:
            yield TTL_SHORT.found(f"{evidence}; it should be {format_duration(proposal.shortest)} or more")
        if ttl > LONGEST_SENSIBLE:
            yield TTL_LONG.found(evidence)
        if probe and probe.longest_ttl and ttl > probe.longest_ttl:
            yield TTL_CUT.found(f"{evidence}; the server grants at most {format_duration(probe.longest_ttl)}")
        if probe and probe.shortest_ttl and ttl < probe.shortest_ttl:
            yield TTL_STRETCHED.found(f"{evidence}; the server grants at least {format_duration(probe.shortest_ttl)}")
        if recovery is not None and ttl + NOTICED > recovery and proposal.meets_recovery:
            within = format_duration(ttl + NOTICED)
            yield TTL_RECOVERY.found(f"{evidence}: up to {within}; --recovery is {format_duration(recovery)}")
