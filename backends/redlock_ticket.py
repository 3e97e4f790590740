"""Waiting for a majority.

At each server we are a waiter as at a single one. What the servers say is put together: granted by a majority, or what
some have granted is given back at once. Each server keeps an order of its own, by the place that it gave; a waiter
then claims the latest of its places at all of them, so that the servers come to agree on who is first, and a lock that
becomes free is not torn between several. Fair it is most of the time, and no promise.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from .base import Grant, Ticket
from .redis_reach import wait_until_woken
from .redis_ticket import CALL, LEAVE, LOOK_AGAIN, RedisTicket

if TYPE_CHECKING:
    from .base import Request
    from .redlock import RedlockBackend
    from .redlock_nodes import Replies

_SPLIT = 0.02
"""Seconds: the mean pause after some servers, but not enough, were had; it doubles each time."""
_LONGEST_SPLIT = 0.6


class RedlockTicket(Ticket):
    def __init__(self, backend: RedlockBackend, request: Request) -> None:
        self._backend = backend
        self._nodes = backend.nodes
        self._request = request
        self._channel = self._nodes.all[0].backend.channels(request.name) + request.client.owner
        self._tickets = [RedisTicket(node.backend, request) for node in self._nodes.all]
        self._call = min(CALL, request.ttl / 3)
        self._splits = 0
        self._look_at = 0.0
        self._open = True
        self._asked = False

    def poll(self) -> Grant | None:
        nodes = self._nodes
        self._asked = True
        self._agree()
        replies = nodes.ask(lambda number: self._tickets[number].poll(), self._call, self._settled)
        granted = [grant for grant in replies.values.values() if grant]
        if len(granted) >= nodes.quorum:
            self._open = False
            for number, node in enumerate(nodes.all):
                if replies.values.get(number) is None:
                    node.do(self._tickets[number].close)  # what comes late is ours all the same
            self._backend.granted(self._request)
            first = min(grant.valid_from for grant in granted)
            return Grant(self._request.name, self._request.client.owner, None, self._request.ttl, first)
        for number, node in enumerate(nodes.all):
            if number not in replies.values or replies.values[number]:
                node.do(partial(self._give_back, number))
        if len(replies.values) < nodes.quorum:
            raise nodes.failure(replies.errors)
        self._plan(replies, split=bool(granted))
        return None

    def _settled(self, replies: Replies[Grant | None]) -> bool:
        """Either way: a majority is ours, or is not to be had any more."""
        granted = sum(grant is not None for grant in replies.values.values())
        return granted >= self._nodes.quorum or len(replies.values) - granted >= self._nodes.quorum

    def _agree(self) -> None:
        places = [int(ticket.place) for ticket in self._tickets if ticket.place]
        for ticket in self._tickets if places else []:
            ticket.place = str(max(places)).encode()

    def _give_back(self, number: int) -> None:
        """In the node's thread, behind a try that may still be under way."""
        spent = self._tickets[number]
        if not spent.open and self._open:
            self._tickets[number] = RedisTicket(self._nodes.all[number].backend, self._request, spent.place)
            self._nodes.all[number].backend.leave(self._request.name, self._request.client.owner, LEAVE)

    def _plan(self, replies: Replies[Grant | None], *, split: bool) -> None:
        """When to look again: when a majority may be free, or after a pause if we are in each other's way."""
        now = self._backend.clock()
        self._splits = self._splits + 1 if split else 0
        if split:
            mean = min(_LONGEST_SPLIT, _SPLIT * 2**self._splits)
            self._look_at = now + random.uniform(0.5, 1.5) * mean
            return
        free_at = sorted(self._tickets[number].look_at for number in replies.values)
        self._look_at = min(free_at[self._nodes.quorum - 1], now + random.uniform(*LOOK_AGAIN))

    def wait(self, timeout: float, cancel: int) -> None:
        limit = min(timeout, self._look_at - self._backend.clock())
        if not self._open or limit <= 0:
            return
        links = []
        if not self._splits:  # what we have just given back ourselves would wake us, or each other
            idle = [node.link for node in self._nodes.all if node.idle]
            links = [link for link in idle if link.listening(self._channel)]
        enough = max(1, min(self._nodes.quorum, len(links)))
        wait_until_woken(links, self._channel, limit, cancel, self._backend.clock, enough)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if not self._asked:
            return
        nodes = self._nodes

        def leave(number: int) -> None:
            ticket = self._tickets[number]
            if ticket.open:
                ticket.close()
            else:  # granted while nobody waited for it
                nodes.all[number].backend.leave(self._request.name, self._request.client.owner, LEAVE)

        nodes.ask(leave, LEAVE, lambda replies: len(replies.values) >= nodes.quorum, queue=True)
