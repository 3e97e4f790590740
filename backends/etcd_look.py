"""Locks of a cluster as they are now, for people."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from . import etcd_record as stored
from . import etcd_requests as requests
from .base import DistlockError, LockState, Marked
from .etcd_driver import pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .etcd_link import Link

_PAGE = 1000


def inspect(link: Link, name: str, until: float) -> LockState:
    while True:
        answer = link.ask("Txn", requests.state(name), until)
        queue, record, success = (list(response.response_range.kvs) for response in answer.responses)
        found = _state(link, name, queue, _only(record), _only(success), until)
        if found is not None:
            return found


def locks(link: Link, next_until: Callable[[], float]) -> Iterator[LockState]:
    """``next_until`` is asked for each request. A lock of an unknown layout does not hide the others: it is told behind
    the last."""
    queues: defaultdict[str, list[Any]] = defaultdict(list)
    for found in _all(link, stored.LOCKS, next_until):
        name = stored.decoded(found.key.removeprefix(stored.LOCKS).partition(b"/")[0])
        if name is not None and found.key.startswith(stored.queue(name)):
            queues[name].append(found)
    records, successes = (
        {stored.decoded(found.key.removeprefix(prefix)): found for found in _all(link, prefix, next_until)}
        for prefix in (stored.RECORDS, stored.SUCCESSES)
    )
    problem: DistlockError | None = None
    for name in sorted({*queues, *filter(None, records)}):
        queue = sorted(queues[name], key=lambda one: int(one.create_revision))
        try:
            state = _state(link, name, queue, records.get(name), successes.get(name), next_until())
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


def _all(link: Link, prefix: bytes, next_until: Callable[[], float]) -> Iterator[Any]:
    start = prefix
    while True:
        answer = link.ask("Range", requests.page(start, prefix, _PAGE), next_until())
        yield from answer.kvs
        if not answer.more:
            return
        start = answer.kvs[-1].key + b"\0"


def _state(link: Link, name: str, queue: list[Any], record: Any, success: Any, until: float) -> LockState | None:
    """None if the holder has gone meanwhile."""
    last_success = _last_success(success) if success is not None else None
    token = stored.last_token(record.key, record.value, record.mod_revision) if record is not None else None
    entries = [stored.decode(one.key, one.value) for one in queue]
    holder = entries[0] if entries else None
    if not queue or (holder and not holder.holds):
        clients = tuple(entry.client for entry in entries if entry)
        return LockState(name, False, token, None, None, None, clients, last_success)
    left: float | None = None
    ttl = holder.ttl if holder else None
    if queue[0].lease:
        lease = link.ask("LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=queue[0].lease), until)
        if lease.TTL < 0:
            return None
        # Whole seconds, rounded down; in the last one it is not over yet.
        left = max(float(lease.TTL), 0.001)
        ttl = ttl or float(lease.grantedTTL)
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


def _last_success(found: Any) -> Marked | None:
    try:
        return stored.marked(found.key, found.value)
    except stored.UnknownLayout:
        return None  # it decides nothing here


def _only(found: list[Any]) -> Any:
    return found[0] if found else None
