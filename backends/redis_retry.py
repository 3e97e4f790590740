"""Trying again within one request, for who can ask more than one server."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from .redis_errors import MAY_PASS, Answered

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Unavailable

_PAUSE = 0.05, 0.15
_SHORTEST = 0.05
_DIVIDED = 0.9
"""Seconds: less is not worth dividing, and would make a busy machine look like a silent server."""


class Attempts:
    """The time of one request, divided among attempts: the first gets half of it if that is long, since a silent server
    may be one that was replaced; all others get what is left."""

    def __init__(self, clock: Callable[[], float], until: float) -> None:
        self._clock = clock
        self._until = until
        self._first = True
        self._failed = False
        self._redirections = 0

    def until(self) -> float:
        """When the attempt that begins now has to be over."""
        if not self._first:
            return self._until
        self._first = False
        left = self._until - self._clock()
        return self._until if left < _DIVIDED else self._until - left / 2

    def redirected(self, error: Unavailable) -> None:
        """The next attempt is elsewhere, and at once, unless it went on like that: nodes may disagree for a while."""
        self._redirections += 1
        if self._redirections % 4 == 0:
            time.sleep(random.uniform(*_PAUSE))
        if self._clock() + _SHORTEST > self._until:
            raise error

    def pause(self, error: Unavailable) -> None:
        """Before the next attempt, but for the second; raises the error if there is no sense or no time in one."""
        pause = random.uniform(*_PAUSE) if self._failed else 0.0
        self._failed = True
        final = error.permanent or (isinstance(error, Answered) and error.code not in MAY_PASS)
        if final or self._clock() + pause + _SHORTEST > self._until:
            raise error
        time.sleep(pause)
