"""A place in the queue of a lock that several may hold at once: see etcd_crowd for the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from . import etcd_crowd as crowds
from . import etcd_record as stored
from . import etcd_requests as requests
from .etcd_errors import LeaseNotFound
from .etcd_ticket import EtcdTicket

if TYPE_CHECKING:
    from .base import Grant, Request
    from .etcd import EtcdBackend
    from .etcd_crowd import Crowd
    from .etcd_driver import Message

_JOINING = 3
"""Tries to hold without queueing: a crowd that comes at once gets in each other's way there, and not in the queue."""


class SeveralTicket(EtcdTicket):
    """The first who may not hold yet watches all keys for a removal: whichever frees first, it is its turn. Those
    behind it watch their predecessor, whose key changes when it holds. So a release wakes one waiter only."""

    tries: ClassVar[int] = 60

    def __init__(self, backend: EtcdBackend, request: Request) -> None:
        super().__init__(backend, request)
        self._holders = request.holders
        self._layout = stored.SEVERAL
        self._crowd: Crowd | None = crowds.NOBODY
        self._clashes = 0  # steps that somebody else was in the way of

    def _try(self, until: float) -> Grant | None:
        self._went, self._before = False, b""
        crowd = self._crowd or self._see(self._ask(crowds.look(self._step(holds=False), self._place), until))
        self._crowd = None
        if mine := crowd.mine_of_indexes(self._lease):  # from a try whose answer was lost
            return self._granted_again(mine, until)
        crowd.refuse_others(self._name, self._holders)
        if self._place and (crowd.mine is None or crowd.mine.create_revision != self._place):
            raise LeaseNotFound("our place in the queue is gone")
        if not self._place and crowd.mine is not None:
            self._place = crowd.mine.create_revision
        before, free = crowd.before(self._place), crowd.free(self._holders)
        alike = all(entry is not None and entry.holders == self._holders for entry in before)
        if len(before) < self._holders and alike and free and (self._place or self._clashes < _JOINING):
            index = self._choose(free, sum(entry is not None and not entry.holds for entry in before))
            return self._hold(crowd, index, until)
        if not self._place:
            self._queue_up(until)
        elif len(before) < self._holders and alike:
            # A holder's key is gone, and its index is not yet: that ends with its lease.
            self._wait_for(stored.indexes(self._name), crowd.revision)
        elif len(before) <= self._holders and alike:
            self._wait_for(stored.queue(self._name), crowd.revision)
        elif crowd.last is not None:
            self._wait_for(crowd.last.key, crowd.revision)
        return None

    def _choose(self, free: list[int], before: int) -> int:
        """The smallest; when others want it at the same time, to each its own, in order of their places."""
        return free[min(before, len(free) - 1)] if self._clashes else free[0]

    def _hold(self, crowd: Crowd, index: int, until: float) -> Grant | None:
        asked_at = self._backend.clock()
        step, layout = self._step(holds=True), self._layout
        place = self._place
        asked = crowds.take(step, index, place) if place else crowds.join(step, index, crowd.revision)
        answer = self._ask(asked, until)
        if answer.succeeded:
            return self._granted(answer, answer.header.revision, asked_at, until, index)
        self._crowd = self._see(answer)
        self._clashes += self._layout == layout
        return None

    def _granted_again(self, mine: Message, until: float) -> Grant:
        asked_at, number = self._backend.clock(), int(mine.key.rpartition(b"/")[2])
        answer = self._ask(requests.holding(self._name, self._lease, number), until)
        if not all(response.response_range.kvs for response in answer.responses):
            raise LeaseNotFound("our lease ran out")
        return self._granted(answer, mine.create_revision, asked_at, until, number)

    def _queue_up(self, until: float) -> None:
        if not self._queue_lease:
            self._make_queue_lease(until)
        answer = self._ask(crowds.queue_up(self._step(holds=False), self._queue_lease), until)
        self._crowd = self._see(answer)
        if answer.succeeded:
            self._place = answer.header.revision
            self._crowd = None  # of which we are not part: look again

    def _see(self, answer: Message) -> Crowd:
        crowd = crowds.found(answer)
        self._check_record(crowd.record)
        return crowd

    def _step(self, *, holds: bool) -> crowds.Step:
        return crowds.Step(self._name, self._holders, self._lease, self._value(holds=holds), self._layout)

    def _start_over(self, until: float) -> None:
        super()._start_over(until)
        self._crowd = crowds.NOBODY

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _watching(self, since: int) -> Message:
        of_all = self._before.endswith(b"/")
        return requests.removal(self._before, since) if of_all else requests.change(self._before, since)

    def _prepare(self) -> None:
        """Which index will be free is not known."""
