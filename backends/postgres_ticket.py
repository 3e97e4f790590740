"""A place in the queue of one PostgreSQL lock."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from . import postgres_sql as sql
from .base import DistlockError, Grant, Ticket, Unavailable
from .postgres_errors import MissingTables

if TYPE_CHECKING:
    from .base import Request
    from .postgres import PostgresBackend

CALL = 5.0
"""Seconds for a try, its connection included: a session is a process of the server, which takes its time to start."""
LEAVE = 0.5
"""Who was told to go does not wait longer for its turn to say so."""
LOOK_AGAIN = 1.05, 1.35
"""Seconds between polls that nothing woke us for. They show that we live (postgres_sql.py says for how long), and find
what nobody tells us of: a lock that is released behind a pooler, or an advisory one by a foreign client."""


class PostgresTicket(Ticket):
    """A lock that is free costs one round trip. One who has to wait listens before it tries once more, so nothing that
    happens after that can be missed."""

    def __init__(self, backend: PostgresBackend, request: Request) -> None:
        self._backend = backend
        self._request = request
        self._channels = sql.channel("wake", request.client.owner), sql.channel("free", request.name)
        self._call = min(CALL, request.ttl / 3)
        self._place = "0"
        self._look_at = 0.0
        self._open = True
        self._asked = False
        self._hopeful = True

    def poll(self) -> Grant | None:
        for _ in range(12):  # a purge may take a record away that was just made
            self._backend.link.connect(self._backend.clock() + self._call)
            self._asked = True
            row = self._backend.attempt(self._request, self._place, self._call, hopeful=self._hopeful)
            self._hopeful = False
            kind, _, _, token, place, look_again, *_ = row
            if kind == "granted" and token:
                self._open = False
                return self._backend.granted(self._request, row)
            if kind in ("waiting", "foreign"):
                self._place = place or "0"
                self._plan(None if look_again is None else float(look_again))
                return None
            # Missing: now it is there. Late, and yet we are here: the server's clock was set, and now we know it.
        raise Unavailable(f"{self._backend.link.address} has a clock that jumps")

    def _plan(self, delay: float | None) -> None:
        look_again = random.uniform(*LOOK_AGAIN)
        if delay is not None:
            look_again = min(look_again, max(delay, 0.0) + 0.002)
        self._look_at = self._backend.clock() + look_again

    def wait(self, timeout: float, cancel: int) -> None:
        backend, link = self._backend, self._backend.link
        if not self._open:
            return
        deaf = backend.is_direct and not all(map(link.hears, self._channels))
        if deaf and link.listen(self._channels, backend.clock() + self._call):
            return  # what happened before must be looked for once
        limit = min(timeout, self._look_at - backend.clock())
        if limit > 0:
            self._hopeful = link.wait(limit, cancel)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if not self._asked:
            return  # the server has never heard of us
        try:
            request = self._request
            self._backend.leave(request.name, request.client.owner, LEAVE, holders=request.holders)
        except (DistlockError, MissingTables):
            pass  # the place is dropped as that of a dead waiter: its session ends, or it is seen no more
