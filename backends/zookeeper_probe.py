"""Whether an ensemble is fit to keep locks: each server of the URL is asked for its role, a session for its limits, and
the ensemble for its members. Neither AdminServer nor a four-letter word beside ``srvr`` is needed. What no client can
see, as whether servers sync to disk, is not told."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

from kazoo.protocol.serialization import GetData

from .base import Refused
from .probe import Finding, Probe
from .zookeeper_session import Session
from .zookeeper_words import Told, told_by

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .zookeeper_connect import Servers
    from .zookeeper_record import Paths
    from .zookeeper_states import Reader

_MEMBERS = "/zookeeper/config"
_MEMBER = re.compile(rb"^server\.\d+=.*?(:observer)?(?:;.*)?$", re.MULTILINE)
_SHORT, _LONG = 0.001, 2_000_000.0
_DEFAULT_TTL = 30.0
_SLOW = 10.0
_PARTS = 3
"""Of the time: the servers' roles have the first of them."""


def probe(servers: Servers, reader: Reader, paths: Paths, clock: Callable[[], float], until: float) -> Probe:
    told = _roles(servers, clock, until)
    shortest, longest = (_granted(servers, clock, asked, until) for asked in (_SHORT, _LONG))
    members = 0 if any(one.mode == "standalone" for one in told) else _members(reader, until)
    return Probe(
        server=_server(told),
        clock_offset=_clock_offset(reader, paths, until),
        findings=(*_of_servers(told), *_of_ensemble(members, servers.known), *_of_limits(shortest, longest)),
        longest_ttl=longest,
        shortest_ttl=shortest,
    )


def _roles(servers: Servers, clock: Callable[[], float], until: float) -> list[Told]:
    asked = servers.ensemble.servers
    share = (until - clock()) / _PARTS / len(asked)
    return [told_by(servers, server, clock() + share, clock) for server in asked]


def _granted(servers: Servers, clock: Callable[[], float], timeout: float, until: float) -> float:
    session = Session(servers, clock)
    try:
        session.open(timeout, until)
        return session.timeout
    finally:
        session.close(until)


def _members(reader: Reader, until: float) -> int | None:
    """Those that count for a majority; 0 without an ensemble, None if that may not be seen."""
    try:
        answer = reader.ask(until, GetData(_MEMBERS, None))[0]
    except Refused:
        return None
    if isinstance(answer, Exception):
        return None
    return sum(1 for member in _MEMBER.finditer(answer[0] or b"") if not member[1])


def _clock_offset(reader: Reader, paths: Paths, until: float) -> float | None:
    for path in (paths.clock, paths.other_clock):
        before = time.time()
        stamp = reader.stamp(until, path)
        if stamp is not None:
            return stamp - (before + time.time()) / 2
    return None


def _server(told: list[Told]) -> str:
    versions = sorted({one.version for one in told if one.version})
    modes = Counter(one.mode for one in told if one.mode)
    said = ", ".join(f"{count} {mode}" if len(told) > 1 else mode for mode, count in sorted(modes.items()))
    return f"ZooKeeper {' and '.join(versions) or 'of unknown version'}{', ' if said else ''}{said}"


def _of_servers(told: list[Told]) -> Iterator[Finding]:
    for one in told:
        if one.trouble:
            yield Finding(
                "One server less may fail before nobody gets or keeps a lock.",
                one.trouble,
                "Start the server, or take it out of the URL if it is gone for good.",
            )
        elif one.mode is None:
            yield Finding(
                "The server's version and role were not looked at: it may be alone, or behind the others.",
                f"{one.address} does not answer srvr",
                "Let four-letter words pass, or look at it with zkServer.sh status.",
            )
        elif one.mode == "read-only":
            yield Finding(
                "The server has lost its ensemble: nobody gets a lock from it.",
                f"{one.address}: Mode: read-only",
                "Bring the others back.",
            )


def _of_ensemble(members: int | None, known: int) -> Iterator[Finding]:
    if members is None:
        yield Finding(
            "How many servers make up the ensemble was not looked at.",
            f"{_MEMBERS} may not be read",
            "Let the user read it, as everybody may by default.",
        )
    elif members < 2:
        yield Finding(
            "No failover: while the server is down nobody gets a lock, and jobs that hold one are stopped.",
            "standalone",
            "Run an ensemble of three servers, or five.",
        )
    elif members == 2:
        yield Finding(
            "The ensemble stands still when either of its servers is down: two are worse than one.",
            f"2 participants in {_MEMBERS}",
            "Run three servers, or five.",
        )
    if members and members > known:
        yield Finding(
            "Jobs are cut off from their locks when the servers of the URL are down, though others may be up.",
            f"the URL leads to {known} of {members} servers",
            "Name all of them.",
        )


def _of_limits(shortest: float, longest: float) -> Iterator[Finding]:
    if longest < _DEFAULT_TTL:
        yield Finding(
            f"A longer --ttl is cut to {longest:g}s: a shorter pause of a job's host stops the job.",
            f"maxSessionTimeout={longest * 1000:.0f}",
            f"Raise it to {_DEFAULT_TTL * 1000:.0f} or more on every server (by default it is 20 times tickTime).",
        )
    if shortest > _SLOW:
        yield Finding(
            f"A shorter --ttl is raised to {shortest:g}s: the lock of a host that vanished is not free before that.",
            f"minSessionTimeout={shortest * 1000:.0f}",
            "Lower it on every server (by default it is twice tickTime).",
        )
