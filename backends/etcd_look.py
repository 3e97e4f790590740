"""Locks of a cluster as they are now, for people."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from . import etcd_record as stored
from . import etcd_requests as requests
from .base import DistlockError, Holding, LockState, Marked
from .etcd_driver import pb
from .several import state_of_several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .etcd_link import Link

_PAGE = 1000


class _Stored(NamedTuple):
    """What there is of one lock; the queue in order."""

    name: str
    queue: list[Any]
    indexes: list[Any]
    record: Any
    success: Any


def inspect(link: Link, name: str, until: float) -> LockState:
    while True:
        answer = link.ask("Txn", requests.state(name), until)
        queue, indexes, record, success = (list(response.response_range.kvs) for response in answer.responses)
        found = _state(link, _Stored(name, queue, indexes, _only(record), _only(success)), until)
        if found is not None:
            return found


def locks(link: Link, next_until: Callable[[], float]) -> Iterator[LockState]:
    """``next_until`` is asked for each request. A lock of an unknown layout does not hide the others: it is told behind
    the last."""
    queues: defaultdict[str, list[Any]] = defaultdict(list)
    for found in pages(link, stored.LOCKS, next_until):
        name = stored.decoded(found.key.removeprefix(stored.LOCKS).partition(b"/")[0])
        if name is not None and found.key.startswith(stored.queue(name)):
            queues[name].append(found)
    records: dict[str, Any] = {}
    indexes: defaultdict[str, list[Any]] = defaultdict(list)
    for found in pages(link, stored.RECORDS, next_until):
        encoded, several, _ = found.key.removeprefix(stored.RECORDS).partition(b"/")
        name = stored.decoded(encoded)
        if name is not None and several:
            indexes[name].append(found)
        elif name is not None:
            records[name] = found
    successes = {
        stored.decoded(found.key.removeprefix(stored.SUCCESSES)): found
        for found in pages(link, stored.SUCCESSES, next_until)
    }
    problem: DistlockError | None = None
    for name in sorted({*queues, *records}):
        queue = sorted(queues[name], key=lambda one: int(one.create_revision))
        lock = _Stored(name, queue, indexes[name], records.get(name), successes.get(name))
        try:
            state = _state(link, lock, next_until())
            yield state or inspect(link, name, next_until())
        except stored.UnknownLayout as error:
            problem = problem or error
    if problem is not None:
        raise problem


def marked(link: Link, name: str, slot: str, until: float) -> Marked | None:
    """Raises UnknownLayout: who asks would do again what is done."""
    for found in link.ask("Range", pb.RangeRequest(key=stored.mark(name, slot)), until).kvs:
        return stored.marked(found.key, found.value)
    return None


def pages(link: Link, prefix: bytes, next_until: Callable[[], float]) -> Iterator[Any]:
    start = prefix
    """All keys that begin with ``prefix``, in the order of their bytes."""
    while True:
        answer = link.ask("Range", requests.page(start, prefix, _PAGE), next_until())
        yield from answer.kvs
        if not answer.more:
            return
        start = answer.kvs[-1].key + b"\0"


def _state(link: Link, lock: _Stored, until: float) -> LockState | None:
    """None if the holder has gone meanwhile."""
    name, queue, indexes, record, success = lock
    last_success = _last_success(success) if success is not None else None
    token = stored.last_token(record.key, record.value, record.mod_revision) if record is not None else None
    entries = [stored.decode(one.key, one.value) for one in queue]
    holder = entries[0] if entries else None
    if indexes and (holder is None or holder.holders > 1):
        holdings = _holdings(link, indexes, queue, entries, until)
        if not holdings:
            return None
        waiters = tuple(entry.client for entry in entries if entry and not entry.holds)
        holders = stored.holders_in(indexes[0].key, indexes[0].value)
        return state_of_several(name, holders, holdings, waiters, last_success)
    if not queue or (holder and not holder.holds):
        clients = tuple(entry.client for entry in entries if entry)
        return LockState(name, False, token, None, None, None, clients, last_success)
    left: float | None = None
    ttl = holder.ttl if holder else None
    if queue[0].lease:
        lease = _lease(link, queue[0].lease, until)
        if lease is None:
            return None
        left = lease[1]
        ttl = ttl or lease[0]
    return LockState(
        name=name,
        held=True,
        token=int(queue[0].create_revision),
        holder=holder.client if holder else None,
        ttl=ttl,
        expires_in=left,
        waiters=tuple(entry.client for entry in entries[1:] if entry),
        last_success=last_success,
        kept=holder is not None and holder.kept,
        revoked_by=holder.revoked_by if holder else None,
    )


def _holdings(
    link: Link, indexes: list[Any], queue: list[Any], entries: list[stored.Entry | None], until: float
) -> list[Holding]:
    """Of those that have not gone meanwhile."""
    by_lease = {one.lease: entry for one, entry in zip(queue, entries, strict=True) if entry is not None}
    found = []
    for index in indexes:
        entry = by_lease.get(index.lease)
        lease = _lease(link, index.lease, until) if entry else None
        if entry and lease:
            number, token = int(index.key.rpartition(b"/")[2]), int(index.create_revision)
            found.append(Holding(number, token, entry.client, entry.ttl, lease[1], entry.kept, entry.revoked_by))
    return found


def _lease(link: Link, lease: int, until: float) -> tuple[float, float] | None:
    """Its TTL, and what is left of it. None if it is no more."""
    answer = link.ask("LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=lease), until)
    # Whole seconds, rounded down; in the last one it is not over yet.
    return None if answer.TTL < 0 else (float(answer.grantedTTL), max(float(answer.TTL), 0.001))


def _last_success(found: Any) -> Marked | None:
    try:
        return stored.marked(found.key, found.value)
    except stored.UnknownLayout:
        return None  # it decides nothing here


def _only(found: list[Any]) -> Any:
    return found[0] if found else None
