"""What a holder asks of etcd: to leave, to be kept, to mark. Each step is done only if it holds the lock."""

from __future__ import annotations

from typing import NamedTuple

from . import etcd_record as stored
from . import etcd_requests as requests
from .etcd_driver import Message, pb

_COMPARE = pb.Compare


class Holder(NamedTuple):
    name: str
    lease: int
    token: int
    number: int | None
    """None of a plain lock."""

    @property
    def key(self) -> bytes:
        return stored.key(self.name, self.lease)

    @property
    def marks_token(self) -> bytes:
        """The key whose create revision is the token."""
        return self.key if self.number is None else stored.index(self.name, self.number)


def _under(key: bytes, lease: int) -> Message:
    return _COMPARE(target=_COMPARE.LEASE, result=_COMPARE.EQUAL, key=key, lease=lease)


def _held(holder: Holder) -> list[Message]:
    """The holder's key is the one created then, and under its lease still: that of a lock that is kept is not."""
    keys = dict.fromkeys((holder.key, holder.marks_token))
    return [requests.created(holder.marks_token, holder.token), *(_under(key, holder.lease) for key in keys)]


class Leaving(NamedTuple):
    """What a holder asks in the end, made ready."""

    plain: bytes
    succeeded: bytes
    """With a mark that ``etcd_record.dated_mark`` completes."""


def leave(holder: Holder) -> Leaving:
    """Remove the holder's key if it is its own, count who is left, and write down a success."""
    asked = pb.TxnRequest(compare=_held(holder), success=_gone(holder))
    plain = bytes(asked.SerializeToString())
    asked.success.append(requests.put(stored.success(holder.name), stored.encode_mark(0.0, 0.0)))
    return Leaving(plain, bytes(asked.SerializeToString()))


def _gone(holder: Holder) -> list[Message]:
    steps = [requests.delete(holder.key), requests.count(holder.name)]
    return steps if holder.number is None else [*steps, requests.delete(holder.marks_token)]


class Written(NamedTuple):
    """A key that goes with a step of the holder's."""

    key: bytes
    value: bytes
    lease: int


def leave_with(holder: Holder, holders: int, kept: Written | None, marks: list[Written]) -> Message:
    """``leave`` with any marks, or not to remove the key but to put another value in it under another lease."""
    if kept is None:
        return _with_marks(holder, _gone(holder), marks)
    steps = [requests.put(*kept), requests.count(holder.name)]
    if holder.number is not None:
        steps.append(requests.put(holder.marks_token, stored.encode_holders(holders), kept.lease))
    return _with_marks(holder, steps, marks)


def mark(holder: Holder, marks: list[Written]) -> Message:
    return _with_marks(holder, [], marks)


def _with_marks(holder: Holder, steps: list[Message], marks: list[Written]) -> Message:
    """The answer has the leases that are in use: of success, those that were before; else those of now."""
    puts = [
        pb.RequestOp(request_put=pb.PutRequest(key=one.key, value=one.value, lease=one.lease, prev_kv=True))
        for one in marks
    ]
    looks = [requests.get(holder.key), *(requests.get(one.key) for one in marks)]
    return pb.TxnRequest(compare=_held(holder), success=[*steps, *puts], failure=looks)


def leases_before(answer: Message) -> set[int]:
    """Of what the marks of a step that succeeded have replaced."""
    return {int(one.response_put.prev_kv.lease) for one in answer.responses if one.HasField("response_put")} - {0}


def leases_in_use(answer: Message) -> set[int]:
    """Of the keys of a step that did not succeed."""
    return {int(found.lease) for one in answer.responses for found in one.response_range.kvs}


def are_waiting(answer: Message) -> bool:
    """Of a step that removed the holder's key: whether somebody has the lock now, or is about to."""
    return bool(answer.succeeded and answer.responses[1].response_range.count)
