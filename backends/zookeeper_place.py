"""A node in the queue of one lock, and the session that it lives in: from queueing until the lease is given back.

The node is what kazoo's Lock makes, ``<uuid>__lock__<sequence>``: the lowest sequence holds the lock, each waiter
watches the one before it. So kazoo's own Lock on the same path excludes us and is excluded, waiting included. Its class
is not used: acquiring with it is one call that blocks in a thread, not a poll, and when it has connected again it takes
a node for its own by the name alone.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from kazoo.protocol.serialization import (
    CheckVersion,
    Create2,
    Exists,
    GetChildren2,
    GetData,
    SetData,
    Transaction,
)

from .base import SUCCESS, Client, Refused, Revoked, Unavailable, Unmarked
from .zookeeper_errors import Expired
from .zookeeper_folders import acl_of, make
from .zookeeper_marks import Writer
from .zookeeper_record import Entry, decode, encode, encode_token, ending, last_token
from .zookeeper_session import NOBODY

if TYPE_CHECKING:
    from .base import Mark
    from .zookeeper_session import Session
    from .zookeeper_states import Reader

EPHEMERAL, SEQUENCE = 1, 2
RECORDED = 600.0
"""Seconds after which a holder writes the lock's record anew, so that its stamp tells of how late it was in use."""
_TRIES = 5


class Place:
    """``node`` and ``token`` are known once there is a node. Everything raises Expired when node or session are gone,
    after which only a new place in a new session will do, and Unavailable, Refused."""

    def __init__(self, session: Session, folder: str, client: Client, ttl: float, holders: int, *, login: bool) -> None:
        self.session = session
        self.folder = folder
        self.holders = holders
        self.node = ""
        self.token = 0
        self.index: int | None = None
        """Of one of several holders, once it is one."""
        self.ttl = ttl
        """As the server granted it, once it was asked."""
        self.version = 0
        """Of our node, as far as we know."""
        self._client = client
        self._acl = acl_of(login=login)
        self._created = 0
        self._revoked_by: str | None = None
        self._through: Reader | None = None
        self._name = ""
        self._recorded_at = 0.0

    @classmethod
    def taken_over(
        cls, session: Session, folder: str, node: str, stat: Any, entry: Entry, *, login: bool, through: Reader
    ) -> Place:
        """That of another process. What need not be asked within the session goes ``through`` another one: if the
        process lives, it takes the session back at once, and two that do so would keep each other from getting on."""
        place = cls(session, folder, entry.client, entry.ttl, 1, login=login)
        place.node, place.token, place.index, place.version = (
            node,
            entry.token_of(stat),
            entry.holder_index,
            stat.version,
        )
        place._created, place._revoked_by, place._through = stat.czxid, entry.revoked_by, through
        return place

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.node}"

    def data(self, beat: float | None = None, one_of_several: tuple[int, int] | None = None) -> bytes:
        """Of a holder, if it does not say how often it beats."""
        if self.index is not None:
            one_of_several = self.index, self.token
        index, token = one_of_several or (None, None)
        entry = Entry(self._client, self.ttl, beat, self.session.identity.password, holder_index=index, token=token)
        return encode(entry)

    def begins(self) -> None:
        self._client = self._client._replace(since=time.time())

    def open(self, until: float) -> None:
        self.session.open(self.ttl, until)
        self.ttl = self.session.timeout

    # -- the node ----------------------------------------------------------------------------------------------------

    def enter(self, until: float, beat: float | None) -> tuple[bool, Any, list[str] | None]:
        """Make the node. Whether the session is a new one as well, the node's stat, and all nodes if they were asked
        for."""
        new = self.session.identity == NOBODY
        if not self.session.connected:
            self.open(until)
        if self._name and (stat := self._find_again(until)):
            return False, stat, None
        self._name = os.urandom(16).hex() + ending(self.holders)
        create = Create2(f"{self.folder}/{self._name}", self.data(beat), self._acl, EPHEMERAL | SEQUENCE)
        requests = create, GetData(self.folder, None), GetChildren2(self.folder, None)
        for _ in range(_TRIES):
            made, folder, children = self.session.ask(until, *requests)
            if not any(isinstance(answer, Exception) for answer in (made, folder, children)):
                break
            make(lambda request: self.session.ask(until, request)[0], self.folder, self._acl)
        else:
            raise Unavailable(f"the folder {self.folder} comes and goes")
        last_token(folder[0], self.folder)
        self._entered(made[0].rpartition("/")[2], made[1])
        return new, made[1], children[0]

    def _find_again(self, until: float) -> Any:
        """Making the node was asked for, and not answered: it may be there. It counts only if it is this session's."""
        children = self.session.ask(until, GetChildren2(self.folder, None))[0]
        for node in [] if isinstance(children, Exception) else children[0]:
            if node.startswith(self._name):
                stat = self.session.ask(until, Exists(f"{self.folder}/{node}", None))[0]
                if not isinstance(stat, Exception):
                    self._entered(node, stat)
                    return stat
        return None

    def _entered(self, node: str, stat: Any) -> None:
        if node.removeprefix(self._name).startswith("-"):
            message = f"the folder {self.folder} has counted to its end: delete it while nobody uses the lock"
            raise Unavailable(message, permanent=True)
        if stat.ephemeralOwner != self.session.identity.number:
            raise Expired
        self.node, self.token, self._created, self.version = node, stat.czxid, stat.czxid, stat.version

    def read(self, answer: Any) -> Entry | None:
        """What the node says, of GetData."""
        if isinstance(answer, Exception):
            raise Expired
        stored, stat = answer
        if stat.ephemeralOwner != self.session.identity.number or stat.czxid != self._created:
            raise Expired
        entry = decode(stored, self.path)
        self.version, self._revoked_by = stat.version, entry and entry.revoked_by
        return entry

    # -- holding -----------------------------------------------------------------------------------------------------

    def renew(self, until: float) -> None:
        """The lease counts from ``session.opened_at`` then. Raises Revoked; from then on nothing prolongs it."""
        if self._revoked_by is not None:
            self.session.drain()
            self.session.forget_events()
            raise self._revoked()
        self.open(until)
        self.hold(until)
        if self.session.opened_at - self._recorded_at > RECORDED:
            self._record_again(until)

    def hold(self, until: float) -> None:
        """Write that we hold the lock: a quorum has seen it, so the leader that started our count was the leader. By
        the version, or it would be written over that somebody has taken the lease away."""
        for _ in range(_TRIES):
            write = SetData(self.path, self.data(), self.version)
            written, read = self.session.ask(until, write, GetData(self.path, True))
            self.read(read)
            if self._revoked_by is not None:
                raise self._revoked()
            if not isinstance(written, Exception):
                return  # else the last time it was written, and the answer was lost
        raise Unavailable(f"somebody writes {self.path} all the time")

    def hold_as(self, until: float, index: int, token: int, record: int) -> bool:
        """Write that we are one of several holders, and the token on record, if the record has this version. False, and
        nothing is written, if it has not."""
        steps = [
            SetData(self.path, self.data(None, (index, token)), self.version),
            SetData(self.folder, encode_token(token), record),
        ]
        written, answer = self.session.ask(until, Transaction(steps), GetData(self.path, True))
        entry = self.read(answer)
        if self._revoked_by is not None:
            raise Expired  # before we knew that it was ours: in the queue once more
        if written is None:
            self.index, self.token = index, token
        elif entry and entry.holder_index is not None:
            self.index, self.token = (
                entry.holder_index,
                entry.token_of(answer[1]),
            )  # the last time, and the answer was lost
        self.recorded()
        return self.index is not None

    def _revoked(self) -> Revoked:
        return Revoked(f"an operator released it: {self._revoked_by}")

    def mark(self, until: float, mark: Mark) -> None:
        """While our node is there, or it raises Expired."""
        if self._write((mark,), until, leave=False):
            self.session.tell(until, Exists(self.path, True))  # what watched it went with the connection

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
        writer = Writer(self._through or self.session, self.folder, self.node, self._acl)
        return writer.write(marks, until, leave=leave, connect=None if self._through else self.open)

    # -- the lock's record -------------------------------------------------------------------------------------------

    def record(self, until: float, *more: Any) -> None:
        """The last token, which outlives the lease; only while the lease lives. Nobody waits for it."""
        self.recorded()
        self._tell(until, SetData(self.folder, encode_token(self.token), -1), *more)

    def recorded(self) -> None:
        self._recorded_at = self.session.opened_at

    def _record_again(self, until: float) -> None:
        """As it is: there may be holders with a later token."""
        self.recorded()
        answer = self.session.ask(until, GetData(self.folder, None))[0]
        if not isinstance(answer, Exception):
            self._tell(until, SetData(self.folder, answer[0], answer[1].version))

    def _tell(self, until: float, write: Any, *more: Any) -> None:
        self.session.tell(until, Transaction([CheckVersion(self.path, -1), write]), *more)
