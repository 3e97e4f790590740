"""A place in the queue of one Redis lock."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from .base import DistlockError, Grant, Ticket, Unavailable
from .redis_reach import wait_until_woken
from .redis_record import details
from .redis_script import Call, ServerTime, script
from .several import other_holders

if TYPE_CHECKING:
    from .base import Request
    from .redis import RedisBackend

CALL = 3.0
LEAVE = 0.5
"""Who was told to go does not wait longer for its turn to say so."""
LOOK_AGAIN = 1.05, 1.35
"""Seconds between polls that nothing woke us for. They show that we live (redis_common.lua says for how long) and find
what nobody tells us of: a lock that was deleted, a foreign one that was released."""


class RedisTicket(Ticket):
    """Every poll subscribes first, tries then, and enters the queue, in one request. So nothing that happens after
    it can be missed, and an uncontended lock costs one round trip."""

    def __init__(
        self, backend: RedisBackend, request: Request, place: bytes = b"", holder_index: int | None = None
    ) -> None:
        self._backend = backend
        self._reach = backend.reach
        self._request = request
        self._channel = backend.channels(request.name) + request.client.owner
        self._waiting = details(request, request.client.since)
        self._call = min(CALL, request.ttl / 3)
        self.place = place
        """In the queue, as the server gave it; empty as long as there is none."""
        self.holder_index = holder_index
        """Of several holders: the only index that will do."""
        self.look_at = 0.0
        """When polling becomes worth while though nothing woke us."""
        self.open = True
        """Neither granted nor closed."""
        self._asked = False

    def poll(self) -> Grant | None:
        until = self._backend.clock() + self._call
        for _ in range(3):
            kind, server_time, *rest = self._try(until)
            self._reach.heard(int(server_time))
            if kind == b"granted":
                self.open = False
                self._reach.unsubscribe(self._channel)
                request = self._request
                index = int(rest[1]) if request.holders > 1 else 0
                owner, sent_at = request.client.owner, self._reach.sent_at
                return Grant(request.name, owner, int(rest[0]), request.ttl, sent_at, request.holders, index)
            if kind == b"others":
                raise other_holders(self._request.name, int(rest[0]), self._request.holders)
            if kind == b"layout":
                raise self._backend.unknown_layout(self._request.name, rest[0])
            if kind == b"waiting":
                self.place = rest[0]
                self._plan(int(rest[1]) / 1000)
                return None
            # Late, and yet we are here: the server's clock was set. Now we know what it says.
        raise Unavailable(f"{self._reach.address} has a clock that jumps")

    def _try(self, until: float) -> list[bytes]:
        request = self._request
        several = request.holders > 1
        keys = (self._backend.all_keys if several else self._backend.keys)(request.name)
        self._reach.connect(keys[0], until)
        self._asked = True
        ttl = self._backend.milliseconds(request.ttl)
        holding = details(request, time.time())
        arguments: list[str | bytes | ServerTime] = [
            request.client.owner,
            ttl,
            holding,
            self._waiting,
            self.place,
            ServerTime(until),
            self._backend.channels(request.name),
        ]
        if several:
            arguments += [str(request.holders), "" if self.holder_index is None else str(self.holder_index)]
        call = Call(script("acquire_several" if several else "acquire"), keys, arguments)
        answer: list[bytes] = self._reach.ask(call, until, self._channel)
        return answer

    def _plan(self, delay: float) -> None:
        look_again = random.uniform(*LOOK_AGAIN)
        self.look_at = self._backend.clock() + (min(look_again, delay + 0.002) if delay >= 0 else look_again)

    def wait(self, timeout: float, cancel: int) -> None:
        limit = min(timeout, self.look_at - self._backend.clock())
        link = self._reach.listening(self._channel)
        if self.open and limit > 0 and link is not None:
            wait_until_woken([link], self._channel, limit, cancel, self._backend.clock)

    def close(self) -> None:
        if not self.open:
            return
        self.open = False
        if not self._asked:
            return  # the server has never heard of us
        try:
            self._backend.leave(self._request.name, self._request.client.owner, self._request.holders, LEAVE)
        except DistlockError:
            pass  # the place is dropped as that of a dead waiter: nobody is subscribed for it any more
        self._reach.unsubscribe(self._channel)
