"""What is asked of etcd. The steps that decide are transactions: each compares and acts at one revision of the store.

The recipe is that of clientv3/concurrency: the key with the smallest create revision of its prefix holds the lock.
"""

from __future__ import annotations

from typing import NamedTuple

from . import etcd_record as stored
from .etcd_driver import Message, pb

_COMPARE = pb.Compare
_SORT = pb.RangeRequest


class Place(NamedTuple):
    """What a transaction that did not grant has found."""

    record: Message | None
    mine: Message | None
    before: Message | None
    """The last key before mine, or the last of all as long as I have none; without its value."""
    revision: int


def _empty(prefix: bytes) -> Message:
    return _COMPARE(
        target=_COMPARE.CREATE,
        result=_COMPARE.EQUAL,
        key=prefix,
        range_end=stored.behind(prefix),
        create_revision=0,
    )


def _first(prefix: bytes, place: int) -> Message:
    """No key of the prefix is older than ``place``."""
    return _COMPARE(
        target=_COMPARE.CREATE,
        result=_COMPARE.GREATER,
        key=prefix,
        range_end=stored.behind(prefix),
        create_revision=place - 1,
    )


def _created(key: bytes, revision: int) -> Message:
    return _COMPARE(target=_COMPARE.CREATE, result=_COMPARE.EQUAL, key=key, create_revision=revision)


def _unchanged(key: bytes, revision: int) -> Message:
    return _COMPARE(target=_COMPARE.MOD, result=_COMPARE.EQUAL, key=key, mod_revision=revision)


def _held(name: str, lease: int, place: int) -> list[Message]:
    """The holder's key is the one created then, and under its lease still: that of a lock that is kept is not."""
    mine = stored.key(name, lease)
    return [
        _created(mine, place),
        _COMPARE(target=_COMPARE.LEASE, result=_COMPARE.EQUAL, key=mine, lease=lease),
    ]


def _known_layout(record: bytes, exists: bool) -> list[Message]:
    """Comparing a value that is not there always fails, so whoever asks has to know or guess whether it is."""
    if not exists:
        return [_created(record, 0)]
    low, high = stored.LAYOUT, stored.LAYOUT + b";"  # the character behind a colon
    return [
        _COMPARE(target=_COMPARE.VALUE, result=_COMPARE.GREATER, key=record, value=low),
        _COMPARE(target=_COMPARE.VALUE, result=_COMPARE.LESS, key=record, value=high),
    ]


def _put(key: bytes, value: bytes, lease: int = 0) -> Message:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def _get(key: bytes) -> Message:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def _delete(key: bytes) -> Message:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))


def _count(name: str) -> Message:
    prefix = stored.queue(name)
    asked = pb.RangeRequest(key=prefix, range_end=stored.behind(prefix), count_only=True)
    return pb.RequestOp(request_range=asked)


def _last(prefix: bytes, older_than: int = 0) -> Message:
    return pb.RequestOp(
        request_range=pb.RangeRequest(
            key=prefix,
            range_end=stored.behind(prefix),
            max_create_revision=max(older_than - 1, 0),
            sort_order=_SORT.DESCEND,
            sort_target=_SORT.CREATE,
            limit=1,
            keys_only=True,
        )
    )


def enter(name: str, lease: int, value: bytes, *, record_exists: bool, waiting: tuple[int, bytes] | None) -> Message:
    """Take the lock if nobody is there: my key under ``lease``, and the record, whose own revision is the token then.
    Otherwise say who came last and, with ``waiting``, a lease and a value, queue behind them."""
    mine, record, prefix = stored.key(name, lease), stored.record(name), stored.queue(name)
    failure = [_get(record), _get(mine), _last(prefix)]
    if waiting is not None:
        failure.append(_put(mine, waiting[1], waiting[0]))
    return pb.TxnRequest(
        compare=[_empty(prefix), *_known_layout(record, record_exists)],
        success=[_put(mine, value, lease), _put(record, stored.encode_token(None))],
        failure=failure,
    )


def take(name: str, lease: int, place: int, value: bytes, *, record_exists: bool) -> Message:
    """Make the waiter at ``place`` the holder if nobody is before it: its key moves from the waiter's lease to
    ``lease`` and keeps its create revision, the token, which is written down."""
    mine, record, prefix = stored.key(name, lease), stored.record(name), stored.queue(name)
    return pb.TxnRequest(
        compare=[_created(mine, place), _first(prefix, place), *_known_layout(record, record_exists)],
        success=[_put(mine, value, lease), _put(record, stored.encode_token(place))],
        failure=[_get(record), _get(mine), _last(prefix, older_than=place)],
    )


class Leaving(NamedTuple):
    """What a holder asks in the end, made ready."""

    plain: bytes
    succeeded: bytes
    """With a mark that ``etcd_record.dated_mark`` completes."""


def leave(name: str, lease: int, place: int) -> Leaving:
    """Remove the holder's key if it is its own, count who is left, and write down a success."""
    asked = pb.TxnRequest(compare=_held(name, lease, place), success=[_delete(stored.key(name, lease)), _count(name)])
    plain = bytes(asked.SerializeToString())
    asked.success.append(_put(stored.success(name), stored.encode_mark(0.0, 0.0)))
    return Leaving(plain, bytes(asked.SerializeToString()))


class Written(NamedTuple):
    """A key that goes with a step of the holder's."""

    key: bytes
    value: bytes
    lease: int


def leave_with(name: str, lease: int, place: int, kept: Written | None, marks: list[Written]) -> Message:
    """``leave`` with any marks, or not to remove the key but to put another value in it under another lease."""
    gone = _delete(stored.key(name, lease)) if kept is None else _put(*kept)
    return _with_marks(name, lease, place, [gone, _count(name)], marks)


def mark(name: str, lease: int, place: int, marks: list[Written]) -> Message:
    return _with_marks(name, lease, place, [], marks)


def _with_marks(name: str, lease: int, place: int, steps: list[Message], marks: list[Written]) -> Message:
    """The answer has the leases that are in use: of success, those that were before; else those of now."""
    puts = [
        pb.RequestOp(request_put=pb.PutRequest(key=one.key, value=one.value, lease=one.lease, prev_kv=True))
        for one in marks
    ]
    looks = [_get(stored.key(name, lease)), *(_get(one.key) for one in marks)]
    return pb.TxnRequest(compare=_held(name, lease, place), success=[*steps, *puts], failure=looks)


def leases_before(answer: Message) -> set[int]:
    """Of what the marks of a step that succeeded have replaced."""
    return {int(one.response_put.prev_kv.lease) for one in answer.responses if one.HasField("response_put")} - {0}


def leases_in_use(answer: Message) -> set[int]:
    """Of the keys of a step that did not succeed."""
    return {int(found.lease) for one in answer.responses for found in one.response_range.kvs}


def are_waiting(answer: Message) -> bool:
    """Of a step that removed the holder's key: whether somebody has the lock now, or is about to."""
    return bool(answer.succeeded and answer.responses[1].response_range.count)


def first(name: str) -> Message:
    prefix = stored.queue(name)
    return pb.RangeRequest(
        key=prefix, range_end=stored.behind(prefix), sort_order=_SORT.ASCEND, sort_target=_SORT.CREATE, limit=1
    )


def remove(name: str, found: Message) -> Message:
    """A holder's key if it is as it was found; and count who is left."""
    return pb.TxnRequest(
        compare=[_unchanged(found.key, found.mod_revision)], success=[_delete(found.key), _count(name)]
    )


def replace(key: bytes, revision: int, value: bytes, lease: int = 0) -> Message:
    """The value of a key that has not changed since ``revision``; 0: that is not there."""
    return pb.TxnRequest(compare=[_unchanged(key, revision)], success=[_put(key, value, lease)], failure=[_get(key)])


def remove_known(key: bytes) -> Message:
    """A record, if its layout is known."""
    return pb.TxnRequest(compare=_known_layout(key, True), success=[_delete(key)], failure=[_get(key)])


def look(name: str, lease: int, place: int) -> Message:
    """What ``take`` finds when it fails; writes nothing. Asks the quorum, as every range does that is not said to be
    serializable. (A transaction without any range would not.)"""
    mine, record, prefix = stored.key(name, lease), stored.record(name), stored.queue(name)
    return pb.TxnRequest(success=[_get(record), _get(mine), _last(prefix, older_than=place)])


def found(answer: Message) -> Place:
    """Of ``look``, or of one of the others that failed."""
    record, mine, before = (next(iter(response.response_range.kvs), None) for response in list(answer.responses)[:3])
    return Place(record, mine, before, answer.header.revision)


def state(name: str) -> Message:
    """The queue of a lock, the holder first, and its records."""
    prefix = stored.queue(name)
    everybody = pb.RangeRequest(
        key=prefix, range_end=stored.behind(prefix), sort_order=_SORT.ASCEND, sort_target=_SORT.CREATE
    )
    records = _get(stored.record(name)), _get(stored.success(name))
    return pb.TxnRequest(success=[pb.RequestOp(request_range=everybody), *records])


def page(start: bytes, prefix: bytes, limit: int) -> Message:
    """Keys that begin with ``prefix``, from ``start`` on, in the order of their bytes."""
    return pb.RangeRequest(key=start, range_end=stored.behind(prefix), limit=limit)


def oldest(prefix: bytes, limit: int) -> Message:
    """Marks that begin with ``prefix``, those first that are forgotten first: see their values."""
    return pb.RangeRequest(
        key=prefix,
        range_end=stored.behind(prefix),
        sort_order=_SORT.ASCEND,
        sort_target=_SORT.VALUE,
        limit=limit,
    )


def removal(key: bytes, since: int) -> Message:
    """A watch of one key for its removal, at ``since`` or any later revision: nothing is missed in between."""
    return pb.WatchRequest(
        create_request=pb.WatchCreateRequest(key=key, start_revision=since, filters=[pb.WatchCreateRequest.NOPUT])
    )


def change(key: bytes, since: int) -> Message:
    """The same for whatever happens to it."""
    return pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key, start_revision=since))
