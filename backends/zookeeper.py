"""Locks on a ZooKeeper ensemble: ``zookeeper://``, ``zookeepers://`` (TLS).

A lease is a session with one ephemeral sequential node, made as kazoo's Lock makes it; its TTL is the session's
time-out, as the servers granted it. The token is the czxid of the node, the number of the change that made it. It is
given at queueing, and yet in the order of the grants: the lowest node holds the lock, nobody comes in before a node
that is there, and of two nodes the later one has the greater czxid. Several holders are the first so many of the queue
(zookeeper_several.py).
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Self

from .base import (
    Backend,
    ConfigurationError,
    DistlockError,
    Grant,
    LeaseLost,
    LockState,
    Mark,
    Marked,
    Safety,
    Unmarked,
)
from .zookeeper_connect import Servers
from .zookeeper_errors import Expired
from .zookeeper_fences import Fences
from .zookeeper_folders import acl_of
from .zookeeper_place import Place
from .zookeeper_probe import probe
from .zookeeper_purge import Purge
from .zookeeper_record import Paths
from .zookeeper_revoke import Meant, revoke
from .zookeeper_session import Identity, Session
from .zookeeper_several import TurnOfSeveral
from .zookeeper_states import Reader
from .zookeeper_ticket import ZooKeeperTicket
from .zookeeper_turn import Turn
from .zookeeper_url import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .base import Environment, Request
    from .probe import Probe
    from .zookeeper_url import Ensemble

_CLOSE = 0.3
_GONE = "its node was removed, or its session has ended"
Key = tuple[str, str]
"""Lock and owner."""


class ZooKeeperBackend(Backend):
    safety: ClassVar[Safety] = "correctness"
    exclusive_until: ClassVar[str] = "the session ends by the leader's clock, or somebody removes the holder's node"
    token_scope: ClassVar[str] = "the ensemble, over restarts and changes of the leader, as long as it keeps its data"
    fifo: ClassVar[bool] = True
    keeps: ClassVar[bool] = False

    def __init__(self, ensemble: Ensemble, clock: Callable[[], float]) -> None:
        self.address = ensemble.address
        self.clock = clock
        self._login = ensemble.user is not None
        self._servers = Servers(ensemble, clock)
        self._paths = Paths(ensemble.chroot)
        self._reader = Reader(self._servers, self._paths, clock)
        self._fences = Fences(self._reader, self._paths, acl_of(login=self._login))
        self._waiting: dict[Key, Turn] = {}
        self._held: dict[Key, Place] = {}
        self._readable = -1

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        ensemble = parse(url)
        if ensemble.user is not None and ensemble.password is None and environment.password is not None:
            try:
                password = os.fsencode(environment.password).decode()
            except UnicodeDecodeError:
                raise ConfigurationError("DISTLOCK_PASSWORD is no UTF-8, which ZooKeeper wants") from None
            ensemble = ensemble._replace(password=password)
        return cls(ensemble, environment.clock)

    # -- queueing ----------------------------------------------------------------------------------------------------

    def enqueue(self, request: Request) -> ZooKeeperTicket:
        return ZooKeeperTicket(self, request)

    def turn(self, request: Request, *, anew: bool = False) -> Turn:
        key = request.name, request.client.owner
        if anew and (gone := self._waiting.pop(key, None)):
            self._end(gone.place, self.clock() + _CLOSE)
        if key not in self._waiting:
            session = Session(self._servers, self.clock)
            folder = self._paths.folder(request.name)
            place = Place(session, folder, request.client, request.ttl, request.holders, login=self._login)
            kind = Turn if request.holders == 1 else TurnOfSeveral
            self._waiting[key] = kind(place, request.name)
        return self._waiting[key]

    def left(self, request: Request) -> None:
        del self._waiting[request.name, request.client.owner]

    def hold(self, request: Request) -> None:
        key = request.name, request.client.owner
        self._held[key] = self._waiting.pop(key).place

    def _end(self, place: Place, until: float) -> None:
        """The node is gone; so should be the session, if it is not."""
        with suppress(DistlockError):
            place.session.close(until)

    # -- leases ------------------------------------------------------------------------------------------------------

    def renew(self, grant: Grant, timeout: float) -> Grant:
        until = self.clock() + timeout
        place = self._place_of(grant, until)
        if place is None:
            raise LeaseLost(_GONE)
        try:
            place.renew(until)
        except Expired:
            raise self._lost(grant, until) from None
        return grant._replace(ttl=place.ttl, valid_from=place.session.opened_at)

    def alarm(self, grant: Grant) -> int | None:
        """The connection: a watch on our node and the end of the connection come that way."""
        place = self._held.get((grant.name, grant.owner))
        if place is None:
            return None
        if not place.session.news():
            return place.session.descriptor
        if self._readable < 0:
            self._readable = os.eventfd(1, os.EFD_CLOEXEC)
        return self._readable

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        if keep_for > 0:
            raise ValueError("ZooKeeper cannot keep a lock beyond the session that holds it")
        until = self.clock() + timeout
        place = self._place_of(grant, until)
        if place is not None:
            try:
                place.give_back(until, marks)
            except Expired:
                self._end(place, min(until, self.clock() + _CLOSE))
            except Unmarked:
                del self._held[grant.name, grant.owner]
                raise
            del self._held[grant.name, grant.owner]

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        until = self.clock() + timeout
        place = self._place_of(grant, until)
        if place is None:
            raise LeaseLost(_GONE)
        try:
            place.mark(until, mark)
        except Expired:
            raise self._lost(grant, until) from None

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        return self._reader.marked(self._paths.folder(name), slot, self.clock() + timeout)

    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        meant = Meant(self._paths.folder(name), token, owner)
        return revoke(self._reader, meant, by, self.clock() + timeout, now=now)

    def _lost(self, grant: Grant, until: float) -> LeaseLost:
        self._end(self._held.pop((grant.name, grant.owner)), min(until, self.clock() + _CLOSE))
        return LeaseLost(_GONE)

    def _place_of(self, grant: Grant, until: float) -> Place | None:
        """Ours, or one that another process has left: the owner counts."""
        key = grant.name, grant.owner
        if key in self._held:
            return self._held[key]
        folder = self._paths.folder(grant.name)
        for node, entry, stat in self._reader.entries(folder, until):
            if entry is None or not entry.holds(node) or entry.client.owner != grant.owner:
                continue
            if entry.token_of(stat) == grant.token:
                session = Session(self._servers, self.clock, Identity(stat.ephemeralOwner, entry.session))
                place = Place.taken_over(session, folder, node, stat, entry, login=self._login, through=self._reader)
                self._held[key] = place
                return place
        return None

    # -- looking -----------------------------------------------------------------------------------------------------

    def inspect(self, name: str, timeout: float) -> LockState:
        return self._reader.state(name, self.clock() + timeout)

    def locks(self, timeout: float) -> Iterator[LockState]:
        """Foreign ones too. ``timeout`` is for each batch of them."""
        return self._reader.states(timeout)

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        """None that a client could see: servers do not tell whether they sync to disk. ``timeout`` is not needed."""
        del timeout
        return ()

    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        return self._fences.advance(resource, index, token, self.clock() + timeout)

    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        self._fences.reset(resource, index, self.clock() + timeout)

    def probe(self, timeout: float) -> Probe:
        return probe(self._servers, self._reader, self._paths, self.clock, self.clock() + timeout)

    def purge(
        self, wanted: Callable[[str], bool], unused_for: float, timeout: float, *, fences: bool = False
    ) -> Iterator[str]:
        """Used is a lock until eleven minutes after what its record says, whose stamp does not tell of a release."""
        purge = Purge(self._reader, self.clock, wanted, unused_for, timeout)
        return purge.fences(self._paths.fences) if fences else purge.locks(self._paths.locks)

    def places(self, name: str) -> tuple[str, ...]:
        return (self._paths.folder(name),)

    def close(self) -> None:
        for place in (*(turn.place for turn in self._waiting.values()), *self._held.values()):
            place.session.drop()
        self._waiting.clear()
        self._held.clear()
        with suppress(DistlockError):
            self._reader.close(self.clock() + _CLOSE)
        if self._readable >= 0:
            os.close(self._readable)
            self._readable = -1
