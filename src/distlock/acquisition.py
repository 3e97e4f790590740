"""Getting the lock: queueing, waiting, giving up. The one loop of this kind; engines only try once and wake.

``cancel`` is a descriptor that becomes readable when nobody wants the lock any more.
"""

import random
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from .backends.base import Backend, Busy, Grant, LockState, OtherHolders, Refused, Request, Ticket, Unavailable
from .durations import format_duration
from .errors import Cancelled, NestedRun
from .holders import describe, is_held_by
from .quoting import quoted
from .timeouts import LOOK

FIRST_CONTACT = 10.0
"""Seconds for which a backend that does not answer is tried before the first answer, if the wait is that long."""
_LONGEST_PAUSE = 1.0


class Waiting(NamedTuple):
    """How to wait. ``wait`` None is without limit, 0 a single try."""

    wait: float | None
    jitter: float
    outer_owners: Sequence[str]
    """Owner ids of the runs around this one."""
    impatient: bool = False
    """A backend that goes away while we wait is given up as early as one that was never there."""


def pause(seconds: float, cancel: int) -> None:
    """Raises Cancelled as soon as ``cancel`` is readable."""
    if select.select([cancel], [], [], max(0.0, seconds))[0]:
        raise Cancelled


class Acquisition:
    """One attempt to get one lock. ``on_asking`` is called when the first try begins, ``on_waiting`` once, when it was
    in vain; ``explain`` asks for the holder, to name it in the error of a conflict; ``qualify`` says no to a backend
    that will not do, before it is asked for the lock."""

    def __init__(
        self,
        backend: Backend,
        request: Request,
        waiting: Waiting,
        cancel: int,
        clock: Callable[[], float],
        *,
        on_asking: Callable[[], None] | None = None,
        qualify: Callable[[], None] | None = None,
        explain: bool = True,
        on_waiting: Callable[[LockState], None] | None = None,
        pause: Callable[[float, int], None] = pause,
    ) -> None:
        self._backend = backend
        self._request = request
        self._waiting = waiting
        self._cancel = cancel
        self._clock = clock
        self._on_asking = on_asking
        self._qualify = qualify
        self._explain = explain
        self._on_waiting = on_waiting
        self._pause = pause
        self._answered = False
        self._silent_since = 0.0
        self._looked = not waiting.outer_owners and on_waiting is None

    def run(self) -> Grant:
        """Raises Busy, NestedRun, OtherHolders, Unavailable, Refused, Cancelled."""
        if self._waiting.jitter:
            self._pause(random.uniform(0, self._waiting.jitter), self._cancel)
        if self._on_asking:
            self._on_asking()
        start = self._clock()
        wait = float("inf") if self._waiting.wait is None else self._waiting.wait
        step = 0.1
        self._silent_since = start
        while True:
            try:
                return self._queue(start + wait)
            except Unavailable as error:
                left = start + wait - self._clock()
                if not self._answered or self._waiting.impatient:
                    left = min(left, self._silent_since + FIRST_CONTACT - self._clock())
                if error.permanent or left <= 0:
                    raise
            self._pause(min(left, step * random.uniform(0.5, 1)), self._cancel)
            step = min(2 * step, _LONGEST_PAUSE)

    def _queue(self, until: float) -> Grant:
        if self._qualify:
            self._qualify()
            self._qualify = None
        if self._request.holders > 1:
            self._refuse_nested()  # there may be a free place, and the run around this one would hold two
        with self._backend.enqueue(self._request) as ticket:
            try:
                grant = ticket.poll()
            except OtherHolders:
                self._refuse_nested()
                raise
            self._answered = True
            self._silent_since = self._clock()
            return grant or self._wait(ticket, until)

    def _wait(self, ticket: Ticket, until: float) -> Grant:
        while True:
            if not self._looked:
                self._look_at_holder()
            left = until - self._clock()
            if left <= 0:
                raise Busy(self._describe_busy())
            ticket.wait(min(left, 3600.0), self._cancel)
            self._pause(0, self._cancel)
            if grant := ticket.poll():
                return grant
            self._silent_since = self._clock()

    def _look_at_holder(self) -> None:
        """Once, after the first try was in vain. A backend that does not tell does not end the wait."""
        try:
            state = self._backend.inspect(self._request.name, LOOK)
        except (Unavailable, Refused):
            return
        self._looked = True
        self._check_not_nested(state)
        if self._on_waiting:
            self._on_waiting(state)

    def _refuse_nested(self) -> None:
        """Without having waited. A backend that does not tell is tried all the same."""
        if self._waiting.outer_owners:
            with suppress(Unavailable, Refused):
                self._check_not_nested(self._backend.inspect(self._request.name, LOOK))

    def _check_not_nested(self, state: LockState) -> None:
        if is_held_by(state, self._waiting.outer_owners):
            raise NestedRun(
                f"{quoted(self._request.name)} is held by the run that this one is inside of: it would wait for itself"
            )

    def _describe_busy(self) -> str:
        waited = "" if not self._waiting.wait else f"not had within {format_duration(self._waiting.wait)}: "
        holder = "held by somebody else"
        if self._explain:
            try:
                holder = describe(self._backend.inspect(self._request.name, LOOK))
            except (Unavailable, Refused):
                pass
        return f"{quoted(self._request.name)}: {waited}{holder}"
