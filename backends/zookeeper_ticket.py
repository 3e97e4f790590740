"""A place in the queue of one ZooKeeper lock."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from .base import DistlockError, Grant, Ticket, Unavailable
from .zookeeper_errors import Expired

if TYPE_CHECKING:
    from .base import Request
    from .zookeeper import ZooKeeperBackend

CALL = 3.0
LEAVE = 0.5
"""Who was told to go does not wait longer for its turn to say so."""


class ZooKeeperTicket(Ticket):
    """A place that could not be left, since nobody answered, is kept: a later ticket of the same owner has it again,
    instead of queueing behind itself."""

    def __init__(self, backend: ZooKeeperBackend, request: Request) -> None:
        self._backend = backend
        self._request = request
        self._turn = backend.turn(request)
        self._call = min(CALL, request.ttl / 3)
        self._open = True

    def poll(self) -> Grant | None:
        clock = self._backend.clock
        until = clock() + self._call
        for _ in range(5):
            reused = self._turn.place.session.connected
            try:
                return self._granted() if self._turn.try_once(until, clock()) else None
            except Expired:
                self._turn = self._backend.turn(self._request, anew=True)
            except Unavailable as error:
                if error.permanent or not reused or clock() >= until:
                    raise
        raise Unavailable(f"{self._backend.address} ends every session or connection at once")

    def _granted(self) -> Grant:
        self._open = False
        self._backend.hold(self._request)
        request, place = self._request, self._turn.place
        since, index = place.session.opened_at, place.index or 0
        return Grant(request.name, request.client.owner, place.token, place.ttl, since, request.holders, index)

    def wait(self, timeout: float, cancel: int) -> None:
        limit = min(timeout, self._turn.next_beat - self._backend.clock())
        if self._open and limit > 0:
            self._turn.place.session.wait(limit, cancel)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        with suppress(DistlockError):
            self._turn.place.session.close(self._backend.clock() + LEAVE)
            self._backend.left(self._request)
