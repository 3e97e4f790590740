"""A node in the queue of one lock, and the session that it lives in: from queueing until the lease is given back.

The node is what kazoo's Lock makes, ``<uuid>__lock__<sequence>``: the lowest sequence holds the lock, each waiter
watches the one before it. So kazoo's own Lock on the same path excludes us and is excluded, waiting included. Its class
is not used: acquiring with it is one call that blocks in a thread, not a poll, and when it has connected again it takes
a node for its own by the name alone.

Nothing but the session ends a node, and a session lasts as long as the TTL that was asked for, so the node of a waiter
that was killed would stand in the way for that long. Hence a waiter beats: it writes its node anew and says in it how
often. Who stands behind a waiter that has missed its beats removes it, if it was not written since (its version). A
holder's node does not say so and is left alone; taking the lock rewrites the node, so that of a waiter thought dead and
a removal at the same time only one comes to pass.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import kazoo.exceptions as its
from kazoo.protocol.serialization import (
    CheckVersion,
    Create2,
    Delete,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    SetData,
    Transaction,
)

from .base import SUCCESS, Client, Refused, Revoked, Unavailable, Unmarked
from .zookeeper_errors import Expired
from .zookeeper_folders import acl_of, make
from .zookeeper_marks import Writer
from .zookeeper_record import MARK, Entry, decode, encode, encode_token, in_order, last_token
from .zookeeper_session import NOBODY

if TYPE_CHECKING:
    from .base import Mark
    from .zookeeper_session import Session
    from .zookeeper_states import Reader

BEAT = 1.2
_MISSED = 3.2
"""Beats, together just under 4 s: noticed by the beat of whoever is behind, within 5 s."""
EPHEMERAL, SEQUENCE = 1, 2
_TRIES = 5


class Place:
    """``node`` and ``token`` are known once there is a node. Everything raises Expired when node or session are gone,
    after which only a new place in a new session will do, and Unavailable, Refused."""

    def __init__(self, session: Session, folder: str, client: Client, ttl: float, *, login: bool) -> None:
        self.session = session
        self.node = ""
        self.token = 0
        self.ttl = ttl
        """As the server granted it, once it was asked."""
        self.next_beat = 0.0
        """By the caller's clock, once others are before us."""
        self._folder = folder
        self._client = client
        self._acl = acl_of(login=login)
        self._version = 0  # of our node, as far as we know
        self._revoked_by: str | None = None
        self._through: Reader | None = None
        self._mark = ""
        self._ahead: list[str] | None = None  # those before us; None: to be asked for
        self._watched = False  # whether the last of them is
        self._beating = False  # whether our node says so
        self._last_beat = 0.0  # by the server's clock
        self._served_since = 0.0  # the same: without a gap that others could not have beaten in

    @classmethod
    def taken_over(
        cls, session: Session, folder: str, node: str, stat: Any, entry: Entry, *, login: bool, through: Reader
    ) -> Place:
        """That of another process. What need not be asked within the session goes ``through`` another one: if the
        process lives, it takes the session back at once, and two that do so would keep each other from getting on."""
        place = cls(session, folder, entry.client, entry.ttl, login=login)
        place.node, place.token, place._version = node, stat.czxid, stat.version
        place._revoked_by, place._through = entry.revoked_by, through
        return place

    @property
    def _path(self) -> str:
        return f"{self._folder}/{self.node}"

    @property
    def _beat(self) -> float:
        return min(BEAT, self.ttl / 3)

    @property
    def _old(self) -> float:
        """The age at which a lease should not begin, in seconds since the server's count was started anew."""
        return self.ttl / 6

    def _data(self, beat: float | None = None) -> bytes:
        return encode(Entry(self._client, self.ttl, beat, self.session.identity.password))

    # -- waiting -----------------------------------------------------------------------------------------------------

    def try_once(self, until: float, now: float) -> bool:
        """Whether the lock is ours: then its lease began at ``session.opened_at``, or later."""
        fresh = not self.node and self._enter(until)
        if not self.session.connected:
            self._open(until)
        while not self._is_first(until):
            if self._stay_behind(until, now):
                return False
        if fresh and not self._beating:
            self._record(until, Exists(self._path, True))
        else:
            self._client = self._client._replace(since=time.time())
            if not self.session.connected or now - self.session.opened_at > self._old:
                self._open(until)
            try:
                self._hold(until)
            except Revoked:
                raise Expired from None  # before we knew that it was ours: in the queue once more
            self._record(until)
        return True

    def _open(self, until: float) -> None:
        self.session.open(self.ttl, until)
        self.ttl = self.session.timeout
        self._ahead, self._watched = None, False

    def _enter(self, until: float) -> bool:
        """Make the node. Whether the session is a new one as well."""
        new = self.session.identity == NOBODY
        if not self.session.connected:
            self._open(until)
        if self._mark and self._find_again(until):
            return False
        self._mark = os.urandom(16).hex() + MARK
        create = Create2(f"{self._folder}/{self._mark}", self._data(), self._acl, EPHEMERAL | SEQUENCE)
        requests = create, GetData(self._folder, None), GetChildren2(self._folder, None)
        made, folder, children = self.session.ask(until, *requests)
        if isinstance(made, its.NoNodeError):
            make(lambda request: self.session.ask(until, request)[0], self._folder, self._acl)
            made, folder, children = self.session.ask(until, *requests)
        if any(isinstance(answer, Exception) for answer in (made, folder, children)):
            raise Unavailable(f"the folder {self._folder} comes and goes")
        last_token(folder[0], self._folder)
        self._entered(made[0].rpartition("/")[2], made[1])
        self._look(children[0])
        return new

    def _find_again(self, until: float) -> bool:
        """Making the node was asked for, and not answered: it may be there. It counts only if it is this session's."""
        children = self.session.ask(until, GetChildren2(self._folder, None))[0]
        for node in [] if isinstance(children, Exception) else children[0]:
            if node.startswith(self._mark):
                stat = self.session.ask(until, Exists(f"{self._folder}/{node}", None))[0]
                if not isinstance(stat, Exception):
                    self._entered(node, stat)
                    return True
        return False

    def _entered(self, node: str, stat: Any) -> None:
        if node.removeprefix(self._mark).startswith("-"):
            message = f"the folder {self._folder} has counted to its end: delete it while nobody uses the lock"
            raise Unavailable(message, permanent=True)
        if stat.ephemeralOwner != self.session.identity.number:
            raise Expired
        self.node, self.token, self._version, self._last_beat = node, stat.czxid, stat.version, stat.ctime / 1000

    def _look(self, children: list[str]) -> None:
        queue = in_order(children)
        if self.node not in queue:
            raise Expired  # somebody has removed it
        self._ahead, self._watched = queue[: queue.index(self.node)], False

    def _is_first(self, until: float) -> bool:
        self.session.drain()
        if self._ahead and self._watched:
            if not self.session.events:
                return False  # its watch would have told of the end of the one before us
            # Nobody comes in before a node that is there. (A node that is not ephemeral has events of other kinds.)
            was_last = len(self._ahead) == 1 and f"{self._folder}/{self._ahead[0]}" in self.session.ended
            self._ahead = [] if was_last else None
            self.session.forget_events()
        if self._ahead is None:
            children = self.session.ask(until, GetChildren2(self._folder, None))[0]
            if isinstance(children, Exception):
                raise Expired
            self._look(children[0])
        return not self._ahead

    def _stay_behind(self, until: float, now: float) -> bool:
        """Beat, if it is time, and look at the one before us. False if that one is gone."""
        assert self._ahead
        if self._watched and now < self.next_beat:
            return True
        before = f"{self._folder}/{self._ahead[-1]}"
        if now + self._beat - self.session.opened_at > self._old > 2 * self._beat:
            # Now, so that it takes no time when our turn has come.
            ahead = self._ahead
            self._open(until)
            self._ahead = ahead
        requests: list[Any] = [SetData(self._path, self._data(self._beat), -1), GetData(before, None)]
        if not self._watched:
            # A watch on its children tells of its end alone, one on its data would tell of each beat.
            requests.append(GetChildren(before, True))
        beaten, *seen = self.session.ask(until, *requests)
        if isinstance(beaten, Exception):
            raise Expired
        self.next_beat, self._version = now + self._beat, beaten.version
        self._served(beaten.mtime / 1000)
        gone = any(isinstance(answer, Exception) for answer in seen)
        if not gone and self._is_dead(decode(seen[0][0], before), seen[0][1]):
            self.session.ask(until, Delete(before, seen[0][1].version))
            gone = True
        self._watched = not gone
        if gone:
            self._ahead = None
        return not gone

    def _served(self, at: float) -> None:
        """A server that stood still has kept others from beating too, and so has a new leader's other clock."""
        if self._beating and not 0 <= at - self._last_beat <= 2 * self._beat:
            self._served_since = at
        self._last_beat, self._beating = at, True

    def _is_dead(self, entry: Entry | None, stat: Any) -> bool:
        """A waiter that has missed its beats. Judged by the server's clock, with which the nodes are stamped."""
        if entry is None or entry.beat is None:
            return False
        return bool(self._last_beat - max(stat.mtime / 1000, self._served_since) > _MISSED * entry.beat)

    # -- holding -----------------------------------------------------------------------------------------------------

    def renew(self, until: float) -> None:
        """The lease counts from ``session.opened_at`` then. Raises Revoked; from then on nothing prolongs it."""
        if self._revoked_by is not None:
            self.session.drain()
            self.session.forget_events()
            raise self._revoked()
        self._open(until)
        self._hold(until)

    def _hold(self, until: float) -> None:
        """Write that we hold the lock: a quorum has seen it, so the leader that started our count was the leader. By
        the version, or it would be written over that somebody has taken the lease away."""
        for _ in range(_TRIES):
            write = SetData(self._path, self._data(), self._version)
            written, read = self.session.ask(until, write, GetData(self._path, True))
            if isinstance(read, Exception):
                raise Expired
            stored, stat = read
            if stat.ephemeralOwner != self.session.identity.number or stat.czxid != self.token:
                raise Expired
            entry = decode(stored, self._path)
            self._version, self._revoked_by = stat.version, entry and entry.revoked_by
            if self._revoked_by is not None:
                raise self._revoked()
            if not isinstance(written, Exception):
                return  # else the last time it was written, and the answer was lost
        raise Unavailable(f"somebody writes {self._path} all the time")

    def _revoked(self) -> Revoked:
        return Revoked(f"an operator released it: {self._revoked_by}")

    def mark(self, until: float, mark: Mark) -> None:
        """While our node is there, or it raises Expired."""
        if self._write((mark,), until, leave=False):
            self.session.tell(until, Exists(self._path, True))  # what watched it went with the connection

    def give_back(self, until: float, marks: tuple[Mark, ...]) -> None:
        """End the node, at once with marks, and then the session. Without marks the session's end is the node's, in one
        step. Raises Expired when both were gone: nothing is written; Unmarked when marks could not be."""
        problem: Refused | Unavailable | None = None
        if marks or self._through:
            try:
                self._write(marks, until, leave=True)
            except (Refused, Unavailable) as error:
                if isinstance(error, Unavailable) and not error.permanent:
                    raise
                problem = error
        # Another process's session, which we have not taken up, is left to that one, or to its time-out, when the node
        # is gone: servers that are asked to take up a session which is just being ended do not always answer.
        if problem or not self._through or self.session.opened_at:
            try:
                self.session.close(until)
            except Unavailable:
                if problem or not self._through:
                    raise  # else the node is gone
        if problem and any(mark.slot != SUCCESS for mark in marks):
            raise Unmarked(str(problem)) from problem

    def _write(self, marks: tuple[Mark, ...], until: float, *, leave: bool) -> bool:
        writer = Writer(self._through or self.session, self._folder, self.node, self._acl)
        return writer.write(marks, until, leave=leave, connect=None if self._through else self._open)

    def _record(self, until: float, *more: Any) -> None:
        """The last token, which outlives the lease; only while the lease lives. Nobody waits for it."""
        record = SetData(self._folder, encode_token(self.token), -1)
        self.session.tell(until, Transaction([CheckVersion(self._path, -1), record]), *more)
