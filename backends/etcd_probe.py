"""Whether an etcd is fit to keep locks: each endpoint is asked for itself, the cluster for its members and alarms. What
no client can see, as whether members sync to disk, is not told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from .base import DistlockError, Refused, Unavailable
from .etcd_driver import Message, pb
from .etcd_link import LONGEST_TTL, new_lease_id
from .probe import Finding, Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .etcd_link import Link

_PARTS = 4
"""Of the time: the endpoints have the first half of them."""
_REVOKES = "a leader that was frozen may revoke leases that its successor keeps, and the lock is granted twice"
_LOSES = "a member that was killed may come back with other data than the others have"
_KNOWN_TROUBLE = (
    # from, to before, what happens, where it is told, what has it mended
    ((3, 5, 0), (3, 5, 3), _LOSES, "etcd #13766", "3.5.13"),
    ((3, 5, 0), (3, 5, 13), _REVOKES, "etcd #15247", "3.5.13"),
    ((0, 0, 0), (3, 4, 31), _REVOKES, "etcd #15247", "3.4.31"),
)


class _Asked(NamedTuple):
    """What one endpoint says of itself."""

    place: str
    status: Message


def probe(link: Link, clock: Callable[[], float], timeout: float) -> Probe:
    """Raises Unavailable if no endpoint answers, Refused."""
    until = clock() + timeout
    answers = link.ask_each("Status", pb.StatusRequest(), clock() + 2 * timeout / _PARTS)
    there = [_Asked(place, answer) for place, answer in answers if not isinstance(answer, DistlockError)]
    away = [(place, answer) for place, answer in answers if isinstance(answer, DistlockError)]
    if not there:
        problems = [problem for _, problem in away]
        raise next((one for one in problems if isinstance(one, Refused)), problems[0])
    members, unlisted = _members(link, clock() + timeout / _PARTS)
    return Probe(
        server=_server(there, members),
        clock_offset=None,  # etcd tells none
        findings=(
            *_of_endpoints(away, there),
            *_of_leaders(there),
            *unlisted,
            *_of_members(members, [place for place, _ in answers]),
            *_of_alarms(link, clock() + timeout / _PARTS / 2),
            *_of_versions(there),
        ),
        longest_ttl=float(LONGEST_TTL),
        shortest_ttl=_shortest_ttl(link, until),
    )


def _server(there: Sequence[_Asked], members: Sequence[Message] | None) -> str:
    versions = sorted({one.status.version for one in there})
    leader = next((one.place for one in there if one.status.leader == one.status.header.member_id), None)
    size = "" if members is None else f", {len(members)} members" if len(members) > 1 else ", a single member"
    return f"etcd {' and '.join(versions)}{size}{f', led by {leader}' if leader and len(there) > 1 else ''}"


def _members(link: Link, until: float) -> tuple[list[Message] | None, list[Finding]]:
    try:
        return list(link.ask("MemberList", pb.MemberListRequest(), until).members), []
    except Refused as error:
        finding = Finding(
            "How many members may fail is not known: the list of members could not be seen.",
            f"MemberList: {error}",
            "Look with `etcdctl member list`, as a user who may.",
        )
        return None, [finding]
    except Unavailable:
        return None, []  # without a leader or a quorum, which is told


def _of_endpoints(away: Sequence[tuple[str, DistlockError]], there: Sequence[_Asked]) -> Iterator[Finding]:
    for place, problem in away:
        yield Finding(
            "An endpoint of the URL does not serve: one more that fails may stop all locks, and the jobs under them.",
            str(problem) if place in str(problem) else f"{place}: {problem}",
            "Bring the member back, or take its address out of the URL.",
        )
    clusters = {one.status.header.cluster_id: one.place for one in there}
    if len(clusters) > 1:
        yield Finding(
            "The URL names members of different clusters, each with locks of its own: two jobs run at once.",
            "; ".join(f"{place}: cluster_id {cluster:x}" for cluster, place in clusters.items()),
            "Name the members of one cluster only.",
        )


def _of_leaders(there: Sequence[_Asked]) -> Iterator[Finding]:
    without = [one.place for one in there if not one.status.leader]
    if without:
        yield Finding(
            "No lock is granted or renewed without a leader: jobs are stopped as their leases end.",
            f"{', '.join(without)}: no leader",
            "Bring back so many members that more than half of them run and reach each other.",
        )


def _of_members(members: Sequence[Message] | None, places: Sequence[str]) -> Iterator[Finding]:
    if members is None:
        return
    names = ", ".join(member.name or f"{member.ID:x}" for member in members)
    if len(members) == 1:
        yield Finding(
            "There is no failover: while this server is away no lock is granted, and jobs end as their leases do.",
            f"members: {names}",
            "Run three members on three hosts.",
        )
    elif len(members) % 2 == 0:
        yield Finding(
            f"Of {len(members)} members no more may fail than of {len(members) - 1}.",
            f"members: {names}",
            "Run an odd number of members.",
        )
    if 1 == len(places) < len(members):
        yield Finding(
            "The URL names one member of several: while that one is away, this host has no locks.",
            f"endpoints: {places[0]}; members: {names}",
            "Name all members in the URL, with commas between.",
        )


def _of_alarms(link: Link, until: float) -> Iterator[Finding]:
    try:
        alarms = link.ask("Alarm", pb.AlarmRequest(), until).alarms
    except Refused as error:
        yield Finding(
            "Whether the server is full or damaged is not known: its alarms could not be seen.",
            f"Alarm: {error}",
            "Look with `etcdctl alarm list`, as a user who may.",
        )
        return
    except Unavailable:
        return  # without a leader or a quorum, which is told
    for kind in sorted({one.alarm for one in alarms}):
        ids = ", ".join(f"{one.memberID:x}" for one in alarms if one.alarm == kind)
        if kind == pb.NOSPACE:
            yield Finding(
                "The server is full: no lock is granted until there is room, and no mark is written.",
                f"alarm: NOSPACE of {ids}",
                "Compact, defragment, raise --quota-backend-bytes, then `etcdctl alarm disarm`.",
            )
        else:
            yield Finding(
                "The server has found its data damaged: what it says of locks is not to be trusted.",
                f"alarm: {'CORRUPT' if kind == pb.CORRUPT else kind} of {ids}",
                "Stop the jobs, and put the damaged member up anew from the others.",
            )


def _of_versions(there: Sequence[_Asked]) -> Iterator[Finding]:
    for version in sorted({one.status.version for one in there}):
        for meaning, told, mended in known_trouble(version):
            yield Finding(
                f"In this version {meaning}.",
                f"version: {version}, {told}",
                f"Use etcd {mended} or later.",
            )


def known_trouble(version: str) -> list[tuple[str, str, str]]:
    """What happens with locks in this version, where it is told, and what has it mended."""
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None:
        return []
    this = tuple(int(number) for number in numbers.groups())
    return [found[2:] for found in _KNOWN_TROUBLE if found[0] <= this < found[1]]


def _shortest_ttl(link: Link, until: float) -> float | None:
    """As a lease of a second is granted, which is given back; None if the server grants none now."""
    lease = new_lease_id()
    try:
        granted = link.make_lease(lease, 1.0, until)
        link.revoke(lease, until)
    except DistlockError:
        return None  # what there is, runs out
    return granted
