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
    one_of_several: Message | None
    """An index, of a holder."""
    revision: int


def empty(prefix: bytes) -> Message:
    """No key begins with it."""
    return none_created_since(prefix, 0)


def none_created_since(prefix: bytes, revision: int) -> Message:
    return _COMPARE(
        target=_COMPARE.CREATE,
        result=_COMPARE.LESS,
        key=prefix,
        range_end=stored.behind(prefix),
        create_revision=revision + 1,
    )


def none_changed_since(prefix: bytes, revision: int) -> Message:
    """What begins with it, or with a key of no slash that key itself; nor was it made."""
    end = stored.behind(prefix) if prefix.endswith(b"/") else b""
    return _COMPARE(target=_COMPARE.MOD, result=_COMPARE.LESS, key=prefix, range_end=end, mod_revision=revision + 1)


def _first(prefix: bytes, place: int) -> Message:
    """No key of the prefix is older than ``place``."""
    return _COMPARE(
        target=_COMPARE.CREATE,
        result=_COMPARE.GREATER,
        key=prefix,
        range_end=stored.behind(prefix),
        create_revision=place - 1,
    )


def _older(key: bytes, place: int) -> Message:
    """What is stored under the key was written before ``place``."""
    return _COMPARE(target=_COMPARE.MOD, result=_COMPARE.LESS, key=key, mod_revision=place)


def created(key: bytes, revision: int) -> Message:
    return _COMPARE(target=_COMPARE.CREATE, result=_COMPARE.EQUAL, key=key, create_revision=revision)


def unchanged(key: bytes, revision: int) -> Message:
    return _COMPARE(target=_COMPARE.MOD, result=_COMPARE.EQUAL, key=key, mod_revision=revision)


def known_layout(record: bytes, layout: bytes | None) -> list[Message]:
    """``layout`` is None if there is no record. Comparing a value that is not there always fails, so whoever asks has
    to know or guess."""
    if layout is None:
        return [created(record, 0)]
    low, high = layout, layout + b";"  # the character behind a colon
    return [
        _COMPARE(target=_COMPARE.VALUE, result=_COMPARE.GREATER, key=record, value=low),
        _COMPARE(target=_COMPARE.VALUE, result=_COMPARE.LESS, key=record, value=high),
    ]


def put(key: bytes, value: bytes, lease: int = 0) -> Message:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def get(key: bytes) -> Message:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def delete(key: bytes) -> Message:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key))


def delete_all(prefix: bytes) -> Message:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=prefix, range_end=stored.behind(prefix)))


def count(name: str) -> Message:
    prefix = stored.queue(name)
    asked = pb.RangeRequest(key=prefix, range_end=stored.behind(prefix), count_only=True)
    return pb.RequestOp(request_range=asked)


def last(prefix: bytes, older_than: int = 0) -> Message:
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


def enter(name: str, lease: int, value: bytes, *, layout: bytes | None, waiting: tuple[int, bytes] | None) -> Message:
    """Take the lock if nobody is there: my key under ``lease``, and the record, whose own revision is the token then.
    Otherwise say who came last and, with ``waiting``, a lease and a value, queue behind them."""
    mine, record, prefix = stored.key(name, lease), stored.record(name), stored.queue(name)
    failure = [get(record), get(mine), last(prefix), _any_index(name)]
    if waiting is not None:
        failure.append(put(mine, waiting[1], waiting[0]))
    return pb.TxnRequest(
        compare=[empty(prefix), *known_layout(record, layout)],
        success=[put(mine, value, lease), put(record, stored.encode_token(None))],
        failure=failure,
    )


def take(name: str, lease: int, place: int, value: bytes, *, layout: bytes | None) -> Message:
    """Make the waiter at ``place`` the holder if nobody is before it: its key moves from the waiter's lease to
    ``lease`` and keeps its create revision, the token, which is written down. Not if one of several was granted the
    lock since: that has a greater token."""
    mine, record, prefix = stored.key(name, lease), stored.record(name), stored.queue(name)
    compares = [created(mine, place), _first(prefix, place), *known_layout(record, layout)]
    if layout == stored.SEVERAL:
        compares.append(_older(record, place))
    return pb.TxnRequest(
        compare=compares,
        success=[put(mine, value, lease), put(record, stored.encode_token(place))],
        failure=[get(record), get(mine), last(prefix, older_than=place), _any_index(name)],
    )


def queue(name: str, limit: int = 0) -> Message:
    """In the order in which they came."""
    prefix = stored.queue(name)
    asked = pb.RangeRequest(
        key=prefix, range_end=stored.behind(prefix), sort_order=_SORT.ASCEND, sort_target=_SORT.CREATE, limit=limit
    )
    return pb.RequestOp(request_range=asked)


def indexes(name: str, limit: int = 0) -> Message:
    prefix = stored.indexes(name)
    return pb.RequestOp(request_range=pb.RangeRequest(key=prefix, range_end=stored.behind(prefix), limit=limit))


def _any_index(name: str) -> Message:
    """There is one while the lock is held by one of several."""
    return indexes(name, 1)


def holding(name: str, lease: int, index: int) -> Message:
    """What there is of one of several holders; ``lease`` is 0 if it is not known. Asks the quorum, as ``look``."""
    mine = get(stored.key(name, lease)) if lease else queue(name)
    return pb.TxnRequest(success=[get(stored.index(name, index)), mine])


def remove(name: str, found: Message, index: Message | None) -> Message:
    """A holder's key if it is as it was found, with its index if it has one; and count who is left."""
    steps = [delete(found.key), count(name), *([delete(index.key)] if index is not None else [])]
    return pb.TxnRequest(compare=[unchanged(found.key, found.mod_revision)], success=steps)


def replace(key: bytes, revision: int, value: bytes, lease: int = 0) -> Message:
    """The value of a key that has not changed since ``revision``; 0: that is not there."""
    return pb.TxnRequest(compare=[unchanged(key, revision)], success=[put(key, value, lease)], failure=[get(key)])


def remove_known(key: bytes) -> Message:
    """A record, if its layout is known."""
    return pb.TxnRequest(compare=known_layout(key, stored.LAYOUT), success=[delete(key)], failure=[get(key)])


def look(name: str, lease: int, place: int) -> Message:
    """What ``take`` finds when it fails; writes nothing. Asks the quorum, as every range does that is not said to be
    serializable. (A transaction without any range would not.)"""
    mine, record, prefix = stored.key(name, lease), stored.record(name), stored.queue(name)
    return pb.TxnRequest(success=[get(record), get(mine), last(prefix, older_than=place), _any_index(name)])


def found(answer: Message) -> Place:
    """Of ``look``, or of one of the others that failed."""
    record, mine, before, index = (
        next(iter(response.response_range.kvs), None) for response in list(answer.responses)[:4]
    )
    return Place(record, mine, before, index, answer.header.revision)


def state(name: str) -> Message:
    """The queue of a lock, the indexes of its holders, and its records."""
    records = get(stored.record(name)), get(stored.success(name))
    return pb.TxnRequest(success=[queue(name), indexes(name), *records])


def latest(prefix: bytes) -> Message:
    """Of the marks that begin with ``prefix``, the one that is forgotten last."""
    asked = pb.RangeRequest(
        key=prefix,
        range_end=stored.behind(prefix),
        sort_order=_SORT.DESCEND,
        sort_target=_SORT.VALUE,
        limit=1,
    )
    return pb.RequestOp(request_range=asked)


def any_of(key: bytes) -> Message:
    """A key, or one of those that begin with it if a slash ends it."""
    end = stored.behind(key) if key.endswith(b"/") else b""
    return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=end, limit=1, keys_only=True))


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
    """A watch of one key, or of all that begin with one that ends with a slash, for a removal at ``since`` or any later
    revision: nothing is missed in between."""
    end = stored.behind(key) if key.endswith(b"/") else b""
    wanted = pb.WatchCreateRequest(key=key, range_end=end, start_revision=since, filters=[pb.WatchCreateRequest.NOPUT])
    return pb.WatchRequest(create_request=wanted)


def change(key: bytes, since: int) -> Message:
    """A watch of one key for whatever happens to it."""
    return pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key, start_revision=since))
