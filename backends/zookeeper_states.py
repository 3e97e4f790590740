"""What operators see: folders and their nodes, read within one session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import kazoo.exceptions as its
from kazoo.protocol.serialization import Create2, Delete, GetChildren2, GetData, Sync
from kazoo.security import OPEN_ACL_UNSAFE

from .base import DistlockError, Holding, LockState, Marked, Refused, Unavailable
from .several import state_of_several
from .zookeeper_errors import Expired
from .zookeeper_folders import check_rights
from .zookeeper_marks import decode as decode_mark
from .zookeeper_marks import mark_path
from .zookeeper_place import EPHEMERAL, SEQUENCE
from .zookeeper_record import Entry, Paths, decode, decoded, holders_of, in_front, in_order, last_token
from .zookeeper_session import NOBODY, Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .zookeeper_connect import Servers

_SESSION = 10.0
_BATCH = 100
_KEEP_CLOCK = 30.0
Contender = tuple[str, Entry | None, Any]
"""A node of a queue, what it says if a distlock has written it, and its stat."""


class Reader:
    """Its session is nobody's lease: it is begun anew when it has ended."""

    def __init__(self, servers: Servers, paths: Paths, clock: Callable[[], float]) -> None:
        self._servers = servers
        self._paths = paths
        self._clock = clock
        self._session = Session(servers, clock)
        self._server_ahead: tuple[float, float] | None = None  # the server's wall clock less ours, and until when

    def ask(self, until: float, *requests: Any) -> list[Any]:
        """Requests that may be sent twice."""
        for _ in range(3):
            reused = self._session.connected
            try:
                if not reused:
                    self._session.open(_SESSION, until)
                return self._session.ask(until, *requests)
            except Expired:
                self._session = Session(self._servers, self._clock)
            except Unavailable:
                if not reused or self._clock() >= until:
                    raise
        raise Unavailable(f"{self._servers.ensemble.address} ends every session at once")

    def entries(self, folder: str, until: float) -> list[Contender]:
        """The queue of one lock: nodes, what they say, their stat. Asked with Sync, or a server that lags behind would
        not show what somebody else was answered."""
        children = self.ask(until, Sync(folder), GetChildren2(folder, None))[1]
        return [] if isinstance(children, its.NoNodeError) else self._entries(folder, children[0], until)

    def in_front(self, folder: str, until: float) -> list[Contender]:
        """Of those the ones that hold the lock, or may as soon as they notice."""
        queue = self.entries(folder, until)
        front = in_front([node for node, _, _ in queue])
        return [found for found in queue if found[0] in front]

    def _entries(self, folder: str, children: list[str], until: float) -> list[Contender]:
        nodes = in_order(children)
        answers: list[Any] = []
        for start in range(0, len(nodes), _BATCH):
            some = nodes[start : start + _BATCH]
            answers += self.ask(until, *(GetData(f"{folder}/{node}", None) for node in some))
        found = zip(nodes, answers, strict=True)
        return [
            (node, decode(got[0], f"{folder}/{node}"), got[1]) for node, got in found if not isinstance(got, Exception)
        ]

    def state(self, name: str, until: float) -> LockState:
        folder = self._paths.folder(name)
        told = self.ask(until, Sync(folder), *_requests(folder))[1:]
        if isinstance(told[0], its.NoNodeError):
            self._check_rights(folder, until)
        return self._state(name, told, until)

    def states(self, timeout: float) -> Iterator[LockState]:
        """Of every lock on record; ``timeout`` is for each batch of them. One of an unknown layout does not hide the
        others: it is told behind the last."""
        problem: DistlockError | None = None
        found = self.ask(self._clock() + timeout, Sync(self._paths.locks), GetChildren2(self._paths.locks, None))[1]
        if isinstance(found, Exception):
            self._check_rights(self._paths.locks, self._clock() + timeout)
            return
        names = sorted(filter(None, map(decoded, found[0])))
        for start in range(0, len(names), _BATCH):
            until = self._clock() + timeout
            batch = names[start : start + _BATCH]
            answers = iter(self.ask(until, *(one for name in batch for one in _requests(self._paths.folder(name)))))
            for name, *told in zip(batch, answers, answers, answers, strict=True):
                try:
                    state = self._state(name, told, until)
                except Unavailable as error:
                    if not error.permanent:
                        raise
                    problem = problem or error
                    continue
                if state.held or state.waiters or state.token is not None:
                    yield state
        if problem is not None:
            raise problem

    def _check_rights(self, folder: str, until: float) -> None:
        check_rights(lambda request: self.ask(until, request)[0], folder)

    def _state(self, name: str, told: list[Any], until: float) -> LockState:
        data, children, success = told
        if isinstance(data, Exception) or isinstance(children, Exception):
            return LockState(name, False, None, None, None, None, ())
        folder = self._paths.folder(name)
        token = last_token(data[0], folder)
        queue = self._entries(folder, children[0], until)
        last = self._marked(success, mark_path(folder), until)
        front = in_front([node for node, _, _ in queue])
        # Who is in front and has not noticed is about to take the lock, and has not yet.
        holding = [(entry, stat) for node, entry, stat in queue if node in front and (not entry or entry.holds(node))]
        holders = [entry for entry, _ in holding]
        waiters = tuple(entry.client for _, entry, _ in queue if entry and entry not in holders)
        if not holding:
            return LockState(name, False, token, None, None, None, waiters, last)
        if None in holders:
            return LockState(name, True, None, None, None, None, waiters, last)
        holdings = [self._holding(entry, stat, until) for entry, stat in holding if entry]
        several = holders_of(front[0])
        if several > 1:
            return state_of_several(name, several, holdings, waiters, last)
        _, token, holder, ttl, left, _, by = holdings[0]
        return LockState(name, True, token, holder, ttl, left, waiters, last, revoked_by=by)

    def _holding(self, entry: Entry, stat: Any, until: float) -> Holding:
        age = self.server_time(until) - (stat.mtime / 1000 if entry.renewed is None else entry.renewed)
        left = min(max(entry.ttl - age, 0.001), entry.ttl)
        token = entry.token_of(stat)
        return Holding(entry.holder_index or 0, token, entry.client, entry.ttl, left, revoked_by=entry.revoked_by)

    def marked(self, folder: str, slot: str, until: float) -> Marked | None:
        path = mark_path(folder, slot)
        return self._marked(self.ask(until, Sync(path), GetData(path, None))[1], path, until)

    def _marked(self, answer: Any, where: str, until: float) -> Marked | None:
        if isinstance(answer, Exception) or (mark := decode_mark(answer, where)) is None:
            return None
        now = self.server_time(until)
        return Marked(mark.began, max(0.0, now - mark.began)) if now < mark.until else None

    def server_time(self, until: float) -> float:
        """Its wall clock, which nodes are stamped with; without the permission to ask for it, ours has to do: it is for
        people."""
        now = self._clock()
        if self._server_ahead is None or now > self._server_ahead[1]:
            stamp = self.stamp(until, self._paths.clock)
            ahead = (time.time() if stamp is None else stamp) - now
            self._server_ahead = ahead, now + _KEEP_CLOCK
        return now + self._server_ahead[0]

    def stamp(self, until: float, path: str) -> float | None:
        """The servers' wall clock now, told by a node that we make and remove. None without the permission for that, or
        without a place for it."""
        create = Create2(path, b"", OPEN_ACL_UNSAFE, EPHEMERAL | SEQUENCE)
        try:
            made = self.ask(until, create)[0]
        except Refused:
            return None
        if isinstance(made, Exception):
            return None
        self._session.tell(until, Delete(made[0], -1))
        return float(made[1].ctime / 1000)

    def close(self, until: float) -> None:
        if self._session.identity != NOBODY:
            self._session.close(until)


def _requests(folder: str) -> tuple[Any, ...]:
    return GetData(folder, None), GetChildren2(folder, None), GetData(mark_path(folder), None)
