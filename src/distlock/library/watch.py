"""What the host knows of its lease, by its own clock.

No thread of the host's is needed: whoever asks reads the shared deadline, the clock and what the renewer has said. So
the answer is right when the renewer is frozen or dead, and after the host itself was. Any thread may ask, also below a
signal handler.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from ..clock import TICK
from ..supervise.wire import Kind, Message

_FORKED = "this process was forked off the one that holds it"
_LATE = "it could not be renewed in time"


class Renewer(Protocol):
    """The part of a renewer that the host listens to."""

    def hard(self) -> float: ...
    def is_gone(self) -> bool: ...
    def messages(self) -> Sequence[Message]: ...
    def await_news(self, seconds: float | None) -> None: ...


class Watch:
    """One lease, from its grant on."""

    def __init__(self, renewer: Renewer, clock: Callable[[], float], getpid: Callable[[], int] = os.getpid) -> None:
        self._renewer = renewer
        self._clock = clock
        self._getpid = getpid
        self._holder = getpid()
        self._listening = threading.Lock()
        self._ended = False
        self._told: list[str] = []  # by the renewer
        self._late = False
        self._dead = False
        self._trouble = ""
        self.seen = False
        """Whether anybody has been told of the loss."""

    @property
    def is_forked(self) -> bool:
        return self._getpid() != self._holder

    def loss(self) -> str | None:
        """Why the lease is lost; None while it is not, and when it was given back in time."""
        if self.is_forked:
            return _FORKED
        if not self._ended:
            self._ask()
        reason = self._broken() or (f"the renewer is dead{self._trouble}" if self._dead else None)
        self.seen = self.seen or reason is not None
        return reason

    def remaining(self) -> float:
        """Seconds to the hard deadline; 0 for a lease that is lost or given back."""
        if self.loss() is not None or self._ended:
            return 0.0
        return max(0.0, self._renewer.hard() - self._clock())

    def wait(self, timeout: float | None) -> bool:
        """Until the lease is lost: True; given back, or ``timeout`` over: False."""
        until = float("inf") if timeout is None else self._clock() + timeout
        while self.loss() is None:
            left = until - self._clock()
            if left <= 0 or self._ended:
                return False
            # A tick and not the whole time: waits stand still in suspend, the clock does not.
            self._renewer.await_news(min(left, TICK))
        return True

    def end(self) -> str | None:
        """Nobody listens to the renewer any more after this: a thread that did would take the renewer's end for a loss,
        and the answer to the release away. Why the lease was not exclusive to the end, or None: a renewer that died
        just now has harmed nobody."""
        if not self._ended:
            self._ask()
            self._ended = True
            with self._listening:
                pass  # whoever listens now is done; who comes later looks at _ended first
        return self._broken()

    def _broken(self) -> str | None:
        return self._told[0] if self._told else f"{_LATE}{self._trouble}" if self._late else None

    def _ask(self) -> None:
        self._listen()
        if self._clock() >= self._renewer.hard():
            self._listen()  # what the renewer says before it withdraws the deadline
            self._late = self._late or not self._ended

    def _listen(self) -> None:
        """If somebody listens already, another thread or this one below a signal handler, the clock will do."""
        if self._listening.acquire(blocking=False):
            try:
                if self._ended:
                    return
                self._dead = self._dead or self._renewer.is_gone()
                for message in self._renewer.messages():
                    if message.kind is Kind.LOST:
                        self._told.append(message.text)
                    elif message.kind in (Kind.TROUBLE, Kind.FAILED):
                        self._trouble = f" ({message.text})"
            finally:
                self._listening.release()
