"""What is asked of etcd for a lock that several may hold at once.

The queue is that of a plain lock, and a foreign client waits for all who came before it, so the rule is: one of ours
may hold while fewer than N keys are older than its own, and each of those is of a lock for the same N. All of that,
once seen, stays true for as long as its key does: older keys only go, and none of them ever says another N. So one
transaction is left to decide: on an index, a key of its own under the holder's lease. Who finds it taken looks again.

The token is the create revision of the index, made when the lock is granted: it is greater than every one before.
"""

from __future__ import annotations

from typing import NamedTuple

from . import etcd_record as stored
from . import etcd_requests as requests
from .etcd_driver import Message, pb
from .several import other_holders

_COMPARE = pb.Compare


class Step(NamedTuple):
    """One of those that may hold, on its way."""

    name: str
    holders: int
    lease: int
    value: bytes
    layout: bytes | None
    """Of the record, as far as is known; None if there is none."""


class Crowd(NamedTuple):
    """Who is there, at one revision."""

    record: Message | None
    mine: Message | None
    last: Message | None
    """The last key before mine, or of all; without its value."""
    first: tuple[Message, ...]
    """The oldest keys, one more than may hold."""
    indexes: tuple[Message, ...]
    revision: int

    def mine_of_indexes(self, lease: int) -> Message | None:
        return next((one for one in self.indexes if one.lease == lease), None)

    def before(self, place: int) -> list[stored.Entry | None]:
        """Of the oldest, those older than ``place``; 0: all of them. None is somebody else's."""
        older = [one for one in self.first if not place or one.create_revision < place]
        return [stored.decode(one.key, one.value) for one in older]

    def free(self, holders: int) -> list[int]:
        taken = {one.key.rpartition(b"/")[2] for one in self.indexes}
        return [number for number in range(holders) if b"%d" % number not in taken]

    def refuse_others(self, name: str, holders: int) -> None:
        """Raises OtherHolders if the lock is held by one that says another number."""
        for one in self.indexes:
            theirs = stored.holders_in(one.key, one.value)
            if theirs != holders:
                raise other_holders(name, theirs, holders)
        entry = stored.decode(self.first[0].key, self.first[0].value) if self.first else None
        if entry and entry.holds and entry.holders == 1:
            raise other_holders(name, 1, holders)


NOBODY = Crowd(None, None, None, (), (), 0)
"""A guess."""


def join(step: Step, index: int, seen: int) -> Message:
    """Hold without queueing if nobody has come since the revision ``seen``, and the index is free."""
    prefix = stored.queue(step.name)
    nobody = _COMPARE(
        target=_COMPARE.CREATE,
        result=_COMPARE.LESS,
        key=prefix,
        range_end=stored.behind(prefix),
        create_revision=seen + 1,
    )
    return _hold(step, index, nobody, 0)


def take(step: Step, index: int, place: int) -> Message:
    """The waiter at ``place``, who may, holds if the index is free."""
    return _hold(step, index, requests.created(stored.key(step.name, step.lease), place), place)


def _hold(step: Step, index: int, unless: Message, place: int) -> Message:
    taken, record = stored.index(step.name, index), stored.record(step.name)
    return pb.TxnRequest(
        compare=[unless, requests.created(taken, 0), *requests.known_layout(record, step.layout)],
        success=[
            requests.put(stored.key(step.name, step.lease), step.value, step.lease),
            requests.put(taken, stored.encode_holders(step.holders), step.lease),
            requests.put(record, stored.encode_token(None, stored.SEVERAL)),
        ],
        failure=_looks(step, place),
    )


def queue_up(step: Step, queue_lease: int) -> Message:
    """Behind all who are there, unless I am already: ``look`` as it was before."""
    mine, looks = stored.key(step.name, step.lease), _looks(step, 0)
    queued = [*looks, requests.put(mine, step.value, queue_lease)]
    return pb.TxnRequest(compare=[requests.created(mine, 0)], success=queued, failure=looks)


def look(step: Step, place: int) -> Message:
    """Asks the quorum, as every range does that is not said to be serializable."""
    return pb.TxnRequest(success=_looks(step, place))


def _looks(step: Step, place: int) -> list[Message]:
    return [
        requests.get(stored.record(step.name)),
        requests.get(stored.key(step.name, step.lease)),
        requests.last(stored.queue(step.name), older_than=place),
        requests.queue(step.name, step.holders + 1),
        requests.indexes(step.name),
    ]


def found(answer: Message) -> Crowd:
    record, mine, last, first, indexes = (tuple(response.response_range.kvs) for response in answer.responses[:5])
    return Crowd(_only(record), _only(mine), _only(last), first, indexes, answer.header.revision)


def _only(found: tuple[Message, ...]) -> Message | None:
    return found[0] if found else None
