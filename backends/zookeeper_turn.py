"""Waiting for a turn in the queue of one lock: who is before us, and whether they live.

Nothing but the session ends a node, and a session lasts as long as the TTL that was asked for, so the node of a waiter
that was killed would stand in the way for that long. Hence a waiter beats: it writes its node anew and says in it how
often. Who stands behind a waiter that has missed its beats removes it, if it was not written since (its version). A
holder's node does not say so and is left alone; taking the lock rewrites the node, so that of a waiter thought dead and
a removal at the same time only one comes to pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.protocol.serialization import Delete, Exists, GetChildren, GetChildren2, GetData, SetData

from .base import Revoked
from .several import other_holders
from .zookeeper_errors import Expired
from .zookeeper_record import decode, holders_of, in_front, in_order, last_token

if TYPE_CHECKING:
    from .zookeeper_place import Place
    from .zookeeper_record import Entry

BEAT = 1.2
_MISSED = 3.2
"""Beats, together just under 4 s: whoever is behind looks then."""
_ROUNDED = 0.05


class Turn:
    """For a lock with one holder. Raises what the place does, and OtherHolders."""

    def __init__(self, place: Place, name: str) -> None:
        self.place = place
        self.next_beat = 0.0
        """By the caller's clock, once others are before us."""
        self._name = name
        self._ahead: list[str] | None = None  # those before us; None: to be asked for
        self._watched = False  # whether what lets us in will be an event
        self._mixed = False  # whether some before us say another number of holders
        self._beating = False  # whether our node says so
        self._last_beat = 0.0  # by the server's clock,
        self._beaten_at = 0.0  # and by ours
        self._served_since = 0.0  # the same: without a gap that others could not have beaten in

    @property
    def beat(self) -> float:
        return min(BEAT, self.place.ttl / 3)

    @property
    def _old(self) -> float:
        """The age at which a lease should not begin, in seconds since the server's count was started anew."""
        return self.place.ttl / 6

    def try_once(self, until: float, now: float) -> bool:
        """Whether the lock is ours: then its lease began at ``session.opened_at``, or later."""
        new = not self.place.node and self._enter(until, now)
        if not self.place.session.connected:
            self._open(until)
        while not self._is_our_turn(until):
            if self._stay_behind(until, now):
                return False
        self._take(until, now, new=new)
        return True

    def _enter(self, until: float, now: float) -> bool:
        del now
        new, stat, nodes = self.place.enter(until, None)
        self._last_beat = stat.ctime / 1000
        if nodes is not None:
            self._look(nodes)
        return new

    def _open(self, until: float) -> None:
        self.place.open(until)
        self._ahead, self._watched = None, False

    def _open_if_old(self, until: float, age: float) -> None:
        if not self.place.session.connected or age > self._old:
            self._open(until)

    def _take(self, until: float, now: float, *, new: bool) -> None:
        place = self.place
        if new and not self._beating and not self._mixed:
            place.record(until, Exists(place.path, True))
            return
        if self._mixed and self._outrun(until):
            raise Expired
        place.begins()
        self._open_if_old(until, now - place.session.opened_at)
        try:
            place.hold(until)
        except Revoked:
            raise Expired from None  # before we knew that it was ours: in the queue once more
        place.record(until)

    def _outrun(self, until: float) -> bool:
        """Whether one of several holders, who all were before us, has got a token that is greater than ours."""
        folder = self.place.folder
        answer = self.place.session.ask(until, GetData(folder, None))[0]
        last = None if isinstance(answer, Exception) else last_token(answer[0], folder)
        return last is not None and last >= self.place.token

    # -- who is before us --------------------------------------------------------------------------------------------

    def _look(self, nodes: list[str]) -> None:
        queue = in_order(nodes)
        if self.place.node not in queue:
            raise Expired  # somebody has removed it
        self._ahead, self._watched = queue[: queue.index(self.place.node)], False
        self._mixed = self._mixed or any(holders_of(node) != self.place.holders for node in self._ahead)

    def _look_again(self, until: float) -> None:
        answer = self.place.session.ask(until, GetChildren2(self.place.folder, None))[0]
        if isinstance(answer, Exception):
            raise Expired
        self._look(answer[0])

    def _is_our_turn(self, until: float) -> bool:
        session = self.place.session
        session.drain()
        if self._mixed:
            session.forget_events()
            self._ahead = None
        elif self._ahead and self._watched:
            if not session.events:
                return False
            # Nobody comes in before a node that is there. (A node that is not ephemeral has events of other kinds.)
            was_last = len(self._ahead) == 1 and f"{self.place.folder}/{self._ahead[0]}" in session.ended
            self._ahead = [] if was_last else None
            session.forget_events()
        if self._ahead is None:
            self._look_again(until)
        return not self._ahead

    def _refuse_others(self, until: float) -> None:
        """Raises OtherHolders if it is held by one that says another number. Who waits for its turn is no holder."""
        if not self._mixed or not self._ahead:
            return
        front = in_front(self._ahead)
        theirs = holders_of(front[0])
        if theirs == self.place.holders:
            return
        for node, entry, _ in self._read(until, front):
            if entry and entry.holds(node):
                raise other_holders(self._name, theirs, self.place.holders)

    def _read(self, until: float, nodes: list[str]) -> list[tuple[str, Entry | None, Any]]:
        """What is there of these."""
        paths = [f"{self.place.folder}/{node}" for node in nodes]
        answers = self.place.session.ask(until, *(GetData(path, None) for path in paths))
        return [
            (node, decode(answer[0], path), answer[1])
            for node, path, answer in zip(nodes, paths, answers, strict=True)
            if not isinstance(answer, Exception)
        ]

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _stay_behind(self, until: float, now: float) -> bool:
        """Beat, if it is time, and look at the one before us. False if that one is gone."""
        assert self._ahead
        self._refuse_others(until)
        before = f"{self.place.folder}/{self._ahead[-1]}"
        if self._watched and now < self.next_beat:
            # Polled without news, of which some may be on the way.
            if not isinstance(self.place.session.ask(until, Exists(before, None))[0], Exception):
                return True
            self._ahead = None
            return False
        self._refresh(until, now)
        requests: list[Any] = [self._beating_once(), GetData(before, None)]
        if not self._watched:
            # A watch on its children tells of its end alone, one on its data would tell of each beat.
            requests.append(GetChildren(before, True))
        beaten, *seen = self.place.session.ask(until, *requests)
        self._has_beaten(beaten, now)
        gone = any(isinstance(answer, Exception) for answer in seen)
        if not gone:
            gone = self._remove_dead(until, self._ahead[-1], decode(seen[0][0], before), seen[0][1])
        self._watched = not gone
        if gone:
            self._ahead = None
        return not gone

    def _refresh(self, until: float, now: float) -> None:
        """Take the session up in time, so that it takes none when our turn has come."""
        if now + self.beat - self.place.session.opened_at > self._old > 2 * self.beat:
            ahead = self._ahead
            self._open(until)
            self._ahead = ahead

    def _beating_once(self) -> Any:
        return SetData(self.place.path, self.place.data(self.beat), -1)

    def _has_beaten(self, stat: Any, now: float) -> None:
        """A server that stood still has kept others from beating too, and so has a new leader's other clock."""
        if isinstance(stat, Exception):
            raise Expired
        self._beaten_at, self.next_beat, self.place.version = now, now + self.beat, stat.version
        at = stat.mtime / 1000
        if self._beating and not 0 <= at - self._last_beat <= 2 * self.beat:
            self._served_since = at
        self._last_beat, self._beating = at, True

    def _remove_dead(self, until: float, node: str, entry: Entry | None, stat: Any) -> bool:
        """A waiter that has missed its beats. Judged by the server's clock, with which the nodes are stamped."""
        if entry is None or entry.beat is None:
            return False
        left = _MISSED * entry.beat - (self._last_beat - max(stat.mtime / 1000, self._served_since))
        if left < 0:
            self.place.session.ask(until, Delete(f"{self.place.folder}/{node}", stat.version))
            return True
        self.next_beat = min(self.next_beat, self._beaten_at + left + _ROUNDED)
        return False
