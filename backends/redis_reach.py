"""How requests get to the server that keeps a lock: the interface of Link (one server), SentinelLink (whoever is the
master) and ClusterLink (one master for each slot); and waiting for what servers tell unasked."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .redis_link import Answer, Link
    from .redis_script import Call

SETTLE = 0.01
"""Seconds for the others after the first of several servers woke us: a release reaches them one by one."""


class Reach(Protocol):
    """Used by one thread at a time. Every call ends by ``until``; what it raises are errors of the contract."""

    @property
    def sent_at(self) -> float:
        """Just before the last request that was answered was sent."""

    @property
    def address(self) -> str:
        """As messages show it: of the server asked last, or of all that may be asked."""

    def connect(self, key: str, until: float) -> None:
        """To the server that has the key. Nothing has been asked for yet after this."""

    def ask(self, call: Call, until: float, channel: str | None = None) -> Answer:
        """Run one script where its keys are; the channel is subscribed to there, before."""

    def heard(self, server_time: int) -> None:
        """What the clock of the server that answered last said, in µs."""

    def masters(self, until: float) -> Sequence[Link]:
        """All that keep locks."""

    def listening(self, channel: str) -> Link | None:
        """Where the channel is subscribed to."""

    def unsubscribe(self, channel: str) -> None:
        """Never raises."""

    def close(self) -> None:
        """Never raises."""


def wait_until_woken(
    links: Sequence[Link], channel: str, timeout: float, cancel: int, clock: Callable[[], float], enough: int = 1
) -> None:
    """Until something came on the channel, or the connection dropped, at so many of the links; or little more comes;
    or ``cancel`` is readable."""
    end = clock() + timeout
    waiting, woken = list(links), 0
    while True:
        for link in [link for link in waiting if link.hear(channel)]:
            waiting.remove(link)
            woken += 1
        if woken >= enough:
            return
        if woken:
            end = min(end, clock() + SETTLE)
        left = end - clock()
        if left <= 0:
            return
        look = select.poll()
        look.register(cancel, select.POLLIN)
        for link in waiting:
            if link.descriptor is not None:
                look.register(link.descriptor, select.POLLIN)
        if any(descriptor == cancel for descriptor, _ in look.poll(left * 1000)):
            return
