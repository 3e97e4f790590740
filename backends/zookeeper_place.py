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
    Create,
    Create2,
    Delete,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    SetData,
    Transaction,
)
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from .base import Client, Unavailable
from .zookeeper_errors import Expired
from .zookeeper_record import (
    MARK,
    SUCCESS,
    Entry,
    decode,
    encode,
    encode_success,
    encode_token,
    in_order,
    last_token,
)
from .zookeeper_session import NOBODY

if TYPE_CHECKING:
    from .zookeeper_session import Session

BEAT = 1.2
_MISSED = 3.2
"""Beats, together just under 4 s: noticed by the beat of whoever is behind, within 5 s."""
EPHEMERAL, SEQUENCE = 1, 2


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
        self._acl = CREATOR_ALL_ACL if login else OPEN_ACL_UNSAFE
        self._mark = ""
        self._ahead: list[str] | None = None  # those before us; None: to be asked for
        self._watched = False  # whether the last of them is
        self._beating = False  # whether our node says so
        self._last_beat = 0.0  # by the server's clock
        self._served_since = 0.0  # the same: without a gap that others could not have beaten in

    @classmethod
    def taken_over(cls, session: Session, folder: str, node: str, token: int, entry: Entry, *, login: bool) -> Place:
        """That of another process."""
        place = cls(session, folder, entry.client, entry.ttl, login=login)
        place.node, place.token = node, token
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
            self._hold(until)
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
            self._make(self._folder, until)
            made, folder, children = self.session.ask(until, *requests)
        if any(isinstance(answer, Exception) for answer in (made, folder, children)):
            raise Unavailable(f"the folder {self._folder} comes and goes")
        last_token(folder[0], self._folder)
        self._entered(made[0].rpartition("/")[2], made[1])
        self._look(children[0])
        return new

    def _make(self, folder: str, until: float) -> None:
        """With what is missing above it, from below: what is there already may be in a place that is not for us."""
        create = Create2(folder, b"", self._acl, 0)
        above = folder.rpartition("/")[0]
        if isinstance(self.session.ask(until, create)[0], its.NoNodeError) and above:
            self._make(above, until)
            self.session.ask(until, create)

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
        self.node, self.token, self._last_beat = node, stat.czxid, stat.ctime / 1000

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
        self.next_beat = now + self._beat
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
        """The lease counts from ``session.opened_at`` then."""
        self._open(until)
        self._hold(until)

    def _hold(self, until: float) -> None:
        """Write that we hold the lock: a quorum has seen it, so the leader that started our count was the leader."""
        stat, watching = self.session.ask(until, SetData(self._path, self._data(), -1), Exists(self._path, True))
        if isinstance(stat, Exception) or isinstance(watching, Exception):
            raise Expired
        if stat.ephemeralOwner != self.session.identity.number or stat.czxid != self.token:
            raise Expired

    def give_back(self, until: float, ran_for: float | None) -> None:
        """End the node, at once with the record of a success, and then the session. Without a success the session's
        end is the node's, in one step. Raises Expired when both were gone: nothing is recorded."""
        if ran_for is not None:
            record = encode_success(ran_for)
            try:
                self._succeed(until, record)
            except Unavailable:  # the connection was dropped; what was carried out already is not done twice
                self._open(until)
                self._succeed(until, record)
        self.session.close(until)

    def _succeed(self, until: float, record: bytes) -> None:
        path = f"{self._folder}/{SUCCESS}"
        end = Delete(self._path, -1)
        ended, written = self.session.ask(until, Transaction([end, SetData(path, record, -1)]))[0][:2]
        if isinstance(written, its.NoNodeError):  # the first one
            create = Create(path, record, self._acl, 0)
            ended, written = self.session.ask(until, Transaction([end, create]))[0][:2]
        if isinstance(ended, Exception) or isinstance(written, Exception):
            raise Expired

    def _record(self, until: float, *more: Any) -> None:
        """The last token, which outlives the lease; only while the lease lives. Nobody waits for it."""
        record = SetData(self._folder, encode_token(self.token), -1)
        self.session.tell(until, Transaction([CheckVersion(self._path, -1), record]), *more)
