"""Waiting for a turn with a lock that several may hold: the first N of its queue, if all of them say N.

The order of the queue alone keeps them to N. The index and the token of a holder are in its node, written in one step
with the lock's record, by the record's version: of two that begin at the same time one has to look again, so that no
two have the same index, and a later grant has the greater token. (Those in front begin when they notice: the later node
may be the faster one.)

Whichever holder ends lets in the first behind those in front, who watches the folder's list of nodes. Everybody else
watches what the one before it says, which changes with its beats, and when it begins to hold: that is when who is
behind it becomes the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.protocol.serialization import GetChildren2, GetData

from .zookeeper_errors import Expired
from .zookeeper_record import decode, in_front, in_order, last_token
from .zookeeper_turn import Turn

if TYPE_CHECKING:
    from .zookeeper_place import Place


class TurnOfSeveral(Turn):
    def __init__(self, place: Place, name: str) -> None:
        super().__init__(place, name)
        self._indexes: dict[str, int] = {}  # of nodes that are known to hold, which they do until they are gone

    def _enter(self, until: float, now: float) -> bool:
        """As a waiter that beats: a new node is no holder before it has an index."""
        new, stat, nodes = self.place.enter(until, self.beat)
        self._last_beat, self._beating = stat.ctime / 1000, True
        self._beaten_at, self.next_beat = now, now + self.beat
        if nodes is not None:
            self._look(nodes)
        return new

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _is_our_turn(self, until: float) -> bool:
        """Looks at each poll, which comes with news or a beat: others have their turn though the first waiter hangs."""
        session = self.place.session
        session.drain()
        ahead, armed = self._ahead, self._watched and not session.events and not self._mixed
        session.forget_events()
        if ahead is None or self._watched:
            self._look_again(until)
            self._watched = armed and self._ahead == ahead
        assert self._ahead is not None
        return self.place.node in in_front([*self._ahead, self.place.node])

    def _stay_behind(self, until: float, now: float) -> bool:
        """Beat, if it is time, and look at those before us. False if something has changed."""
        assert self._ahead
        self._refuse_others(until)
        due = now >= self.next_beat
        if self._watched and not due:
            return True
        if due:
            self._refresh(until, now)
        ahead = self._ahead
        first = in_front(ahead) == ahead  # each of those before us may begin to hold, and its end lets us in
        nodes = [node for node in ahead if node not in self._indexes] if first else ahead[-1:]
        requests: list[Any] = [self._beating_once()] if due else []
        requests.append(GetChildren2(self.place.folder, first or None))
        requests += [GetData(f"{self.place.folder}/{node}", None if first else True) for node in nodes]
        answers = self.place.session.ask(until, *requests)
        if due:
            self._has_beaten(answers.pop(0), now)
        there, *said = answers
        if isinstance(there, Exception):
            raise Expired
        self._look(there[0])
        changed = self._ahead != ahead
        for node, answer in zip(nodes, said, strict=True):
            changed = self._has_changed(until, node, answer, first=first) or changed
        self._watched = not changed
        if changed:
            self._ahead = None
        return not changed

    def _has_changed(self, until: float, node: str, answer: Any, *, first: bool) -> bool:
        if isinstance(answer, Exception):
            return True
        entry = decode(answer[0], f"{self.place.folder}/{node}")
        if entry and entry.holder_index is not None:
            self._indexes[node] = entry.holder_index
            return not first
        return self._remove_dead(until, node, entry, answer[1])

    # -- beginning to hold -------------------------------------------------------------------------------------------

    def _take(self, until: float, now: float, *, new: bool) -> None:
        del new
        self.place.begins()
        self._open_if_old(until, now - self.place.session.opened_at)
        self.place.session.forget_events()
        while not self._begin(until):
            pass  # somebody else did, who may have had the same index

    def _begin(self, until: float) -> bool:
        place = self.place
        # The record first: who begins after that has changed its version.
        record, nodes = place.session.ask(until, GetData(place.folder, None), GetChildren2(place.folder, None))
        if isinstance(record, Exception) or isinstance(nodes, Exception):
            raise Expired
        others = [node for node in in_front(in_order(nodes[0])) if node != place.node]
        for node, entry, _ in self._read(until, [node for node in others if node not in self._indexes]):
            if entry and entry.holder_index is not None:
                self._indexes[node] = entry.holder_index
        taken = {self._indexes.get(node) for node in others}
        index = next(index for index in range(place.holders) if index not in taken)
        token = max(place.token, 1 + (last_token(record[0], place.folder) or 0))
        return place.hold_as(until, index, token, record[1].version)
