"""Waiting for a majority.

Of several holders each server numbers those that it knows. An index is had where a majority gives this owner this one,
so that no two owners have the same; any other place that a server gave is given back, or changed into this one.

At each server we are a waiter as at a single one. What the servers say is put together: granted by a majority, or what
some have granted is given back at once. Each server keeps an order of its own, by the place that it gave; a waiter
then claims the latest of its places at all of them, so that the servers come to agree on who is first, and a lock that
becomes free is not torn between several. Fair it is most of the time, and no promise.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from .base import Grant, OtherHolders, Ticket
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
        self._wanted: int | None = None
        """The only index that will do in the next try."""
        self._look_at = 0.0
        self._open = True
        self._asked = False

    def poll(self) -> Grant | None:
        nodes = self._nodes
        self._asked = True
        self._agree()
        replies = nodes.ask(lambda number: self._tickets[number].poll(), self._call, self._settled)
        granted = {number: grant for number, grant in replies.values.items() if grant}
        index = self._agreed(replies)
        if index is not None:
            return self._granted(granted, index)
        for number, node in enumerate(nodes.all):
            if number not in replies.values or replies.values[number]:
                node.do(partial(self._give_back, number))
        refused = {number: error for number, error in replies.errors.items() if isinstance(error, OtherHolders)}
        if others := self._others(replies):
            raise others
        if len(replies.values) + len(refused) < nodes.quorum:
            raise nodes.failure({number: error for number, error in replies.errors.items() if number not in refused})
        indexes = {grant.holder_index for grant in granted.values()}
        self._plan(replies, split=bool(granted) or self._wanted is not None)
        # Servers that have different gaps would number us differently again. Below the greatest index one of them had
        # none, so that is the only one that may be free at all.
        self._wanted = max(indexes) if len(indexes) > 1 and self._wanted is None else None
        return None

    def _granted(self, granted: dict[int, Grant], index: int) -> Grant:
        nodes, request = self._nodes, self._request
        self._open = False
        ours = {number: grant for number, grant in granted.items() if grant.holder_index == index}
        first = min(grant.valid_from for grant in ours.values())
        grant = Grant(request.name, request.client.owner, None, request.ttl, first, request.holders, index)
        self._backend.granted(request)
        for number, node in enumerate(nodes.all):
            if number in granted and number not in ours:
                self._backend.restore(number, grant)
            elif number not in granted:
                node.do(self._tickets[number].close)  # what comes late is ours all the same, or changed by a renewal
        return grant

    def _agreed(self, replies: Replies[Grant | None]) -> int | None:
        """The index that a majority has given us."""
        given = Counter(grant.holder_index for grant in replies.values.values() if grant)
        return next((index for index, count in given.items() if count >= self._nodes.quorum), None)

    def _others(self, replies: Replies[Grant | None]) -> OtherHolders | None:
        """By the word of a majority: what only a few say may be the rest of a try."""
        told = [error for error in replies.errors.values() if isinstance(error, OtherHolders)]
        alike = Counter(str(error) for error in told)
        return next((error for error in told if alike[str(error)] >= self._nodes.quorum), None)

    def _settled(self, replies: Replies[Grant | None]) -> bool:
        """Either way: a majority is ours, or is not to be had any more."""
        quorum = self._nodes.quorum
        refused = sum(grant is None for grant in replies.values.values())
        return self._agreed(replies) is not None or refused >= quorum or self._others(replies) is not None

    def _agree(self) -> None:
        places = [int(ticket.place) for ticket in self._tickets if ticket.place]
        for ticket in self._tickets:
            ticket.holder_index = self._wanted
            if places:
                ticket.place = str(max(places)).encode()

    def _give_back(self, number: int) -> None:
        """In the node's thread, behind a try that may still be under way."""
        spent = self._tickets[number]
        if not spent.open and self._open:
            self._tickets[number] = RedisTicket(self._nodes.all[number].backend, self._request, spent.place)
            self._leave(number)

    def _leave(self, number: int) -> None:
        request = self._request
        self._nodes.all[number].backend.leave(request.name, request.client.owner, request.holders, LEAVE)

    def _plan(self, replies: Replies[Grant | None], *, split: bool) -> None:
        """When to look again: when a majority may be free, or after a pause if we are in each other's way."""
        now = self._backend.clock()
        self._splits = self._splits + 1 if split else 0
        if split:
            mean = min(_LONGEST_SPLIT, _SPLIT * 2**self._splits)
            self._look_at = now + random.uniform(0.5, 1.5) * mean
            return
        look_again = now + random.uniform(*LOOK_AGAIN)
        free_at = sorted(self._tickets[number].look_at for number in replies.values)[self._nodes.quorum - 1 :]
        self._look_at = min([*free_at[:1], look_again])

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
                self._leave(number)

        nodes.ask(leave, LEAVE, lambda replies: len(replies.values) >= nodes.quorum, queue=True)
