"""Forgetting locks that are no longer used, and fence registers.

No floor is kept: the tokens of all locks are revisions of one store, which only grow.

etcd has no clock, but its revisions are in order. So each purge writes down the revision that the store has by then and
the time on its host, and a record that has not changed since such a revision has not been granted since that time. The
first purge of a store therefore finds nothing that is known to be old, but with ``unused_for`` 0 everything. A clock
that was set back lets a purge keep more, one set forward forget sooner; no token depends on it. Of a release nothing is
written: what counts is the last grant, and that nobody holds the lock now.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from . import etcd_record as stored
from . import etcd_requests as requests
from .base import DistlockError
from .etcd_driver import Message, pb
from .etcd_look import pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .etcd_link import Link

_BATCH = 40
"""Locks for one request; a server takes 128 operations, with those nested in them."""
_TIMES = b"/times"
"""Behind what the records begin with: no name is encoded so. 1:REVISION:TIME,… of earlier purges, the latest first,
TIME in µs of Unix time."""
_THINNED = 1 / 16
"""Part of its age by which an earlier one is older than the one after it: some two hundred span a century."""
_ENDLESS = 1 << 62


class _Known(NamedTuple):
    revision: int
    at: float


def purge(
    link: Link,
    wanted: Callable[[str], bool],
    unused_for: float,
    next_until: Callable[[], float],
    *,
    fences: bool,
) -> Iterator[str]:
    """``next_until`` is asked for each request. What has an unknown layout stays, and is told behind the last."""
    times = (stored.FENCES if fences else stored.RECORDS) + _TIMES
    newest = _newest(link, times, unused_for, next_until())
    found = _registers(link, wanted, next_until) if fences else _locks(link, wanted, newest, next_until)
    problem: DistlockError | None = None
    batch: list[tuple[str, Message]] = []
    for one in found:
        if isinstance(one, DistlockError):
            problem = problem or one
        elif one.revision <= newest:
            batch.append((one.name, one.step))
        if len(batch) == _BATCH:
            yield from _done(link, batch, next_until())
            batch = []
    yield from _done(link, batch, next_until())
    if problem is not None:
        raise problem


class _Candidate(NamedTuple):
    name: str
    revision: int
    """Of its last change."""
    step: Message
    """Forgets it if it is as it was found."""


def _newest(link: Link, times: bytes, unused_for: float, until: float) -> int:
    """The revision since which what changed may have been in use; writes down that of now."""
    now = time.time()
    answer = link.ask("Range", pb.RangeRequest(key=times), until)
    before = [known for one in answer.kvs for known in _times(one.key, one.value) if known.at <= now]
    kept = [_Known(answer.header.revision, now)]
    for known in before:
        if kept[-1].at - known.at >= _THINNED * (now - known.at) and known.at < kept[-1].at:
            kept.append(known)
    text = b",".join(b"%d:%d" % (known.revision, known.at * 1e6) for known in kept)
    changed = answer.kvs[0].mod_revision if answer.kvs else 0
    with suppress(DistlockError):  # another purge is in our way, or we may only delete: the next one knows less
        link.ask("Txn", requests.replace(times, changed, stored.LAYOUT + b":" + text), until)
    if unused_for <= 0:
        return _ENDLESS
    return max((known.revision for known in before if known.at <= now - unused_for), default=0)


def _times(where: bytes, value: bytes) -> list[_Known]:
    layout, _, text = value.partition(b":")
    try:
        if layout == stored.LAYOUT:
            pairs = (one.split(b":") for one in text.split(b","))
            return [_Known(int(revision), int(at) / 1e6) for revision, at in pairs]
    except ValueError:
        pass
    raise stored.UnknownLayout(where, value)


def _locks(
    link: Link, wanted: Callable[[str], bool], newest: int, next_until: Callable[[], float]
) -> Iterator[_Candidate | DistlockError]:
    batch: list[tuple[str, Message]] = []
    for found in pages(link, stored.RECORDS, next_until):
        name = stored.decoded(found.key.removeprefix(stored.RECORDS))
        if name is None or found.mod_revision > newest or not wanted(name):
            continue
        try:
            stored.last_token(found.key, found.value, found.mod_revision)
        except stored.UnknownLayout as error:
            yield error
            continue
        batch.append((name, found))
        if len(batch) == _BATCH:
            yield from _unmarked(link, batch, next_until())
            batch = []
    yield from _unmarked(link, batch, next_until())


def _unmarked(link: Link, batch: list[tuple[str, Message]], until: float) -> Iterator[_Candidate | DistlockError]:
    """Those of which nothing is yet to be remembered, to be forgotten if nothing is to be then."""
    if not batch:
        return
    looks: list[Message] = []
    for name, _ in batch:
        looks.extend((requests.get(stored.success(name)), requests.latest(stored.marks(name))))
    answer = link.ask("Txn", pb.TxnRequest(success=looks), until)
    seen = int(answer.header.revision)
    for at, (name, found) in enumerate(batch):
        marks = [one for response in answer.responses[2 * at : 2 * at + 2] for one in response.response_range.kvs]
        try:
            if any(stored.marked(one.key, one.value) for one in marks):
                continue
        except stored.UnknownLayout as error:
            yield error
            continue
        record, success, others = stored.record(name), stored.success(name), stored.marks(name)
        unless = [
            requests.unchanged(record, found.mod_revision),
            requests.empty(stored.queue(name)),
            requests.empty(stored.indexes(name)),
            *(requests.none_changed_since(one, seen) for one in (success, others)),
        ]
        steps = [requests.delete(record), requests.delete(success), requests.delete_all(others)]
        yield _Candidate(name, found.mod_revision, _step(unless, steps, record))


def _registers(
    link: Link, wanted: Callable[[str], bool], next_until: Callable[[], float]
) -> Iterator[_Candidate | DistlockError]:
    """All of a resource's together: they are behind each other."""
    last, revision = b"", 0
    for found in pages(link, stored.FENCES, next_until):
        encoded = found.key.removeprefix(stored.FENCES).partition(b"/")[0]
        if not encoded:
            continue
        if encoded != last:
            yield from _register(last, revision, wanted)
            last, revision = encoded, 0
        try:
            stored.register(found.key, found.value)
            revision = max(revision, int(found.mod_revision))
        except stored.UnknownLayout as error:
            revision = 2 * _ENDLESS
            yield error
    yield from _register(last, revision, wanted)


def _register(encoded: bytes, revision: int, wanted: Callable[[str], bool]) -> Iterator[_Candidate]:
    name = stored.decoded(encoded)
    if name is not None and wanted(name):
        prefix = stored.fences(name)
        unless = [requests.none_changed_since(prefix, min(revision, _ENDLESS))]
        yield _Candidate(name, revision, _step(unless, [requests.delete_all(prefix)], prefix))


def _step(unless: Iterable[Message], steps: Iterable[Message], gone: bytes) -> Message:
    """The answer to one that is not done says whether ``gone`` is there: if our first try was answered in vain, not."""
    return pb.RequestOp(request_txn=pb.TxnRequest(compare=unless, success=steps, failure=[requests.any_of(gone)]))


def _done(link: Link, batch: list[tuple[str, Message]], until: float) -> Iterator[str]:
    if not batch:
        return
    answer = link.ask("Txn", pb.TxnRequest(success=[step for _, step in batch]), until)
    for (name, _), one in zip(batch, answer.responses, strict=True):
        nested = one.response_txn
        if nested.succeeded or not nested.responses[0].response_range.kvs:
            yield name
