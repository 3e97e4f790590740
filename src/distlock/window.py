"""Once per window: whether a run is to be skipped, and what it leaves for later runs to see.

Asked and written under the lock, so that of two hosts only one can pass. Ages are by the engine's clock where it has
one; where it has none, the wall clocks of two hosts are compared: their difference counts as a part of the interval.
A run whose lease was lost, that was stopped, or that failed has not succeeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .backends.base import SUCCESS, SUCCESS_KEPT, Mark
from .durations import format_duration
from .errors import Skipped
from .quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from .backends.base import Backend, Grant

_STARTED = "started"
_ONCE = "once:"
LONGEST_KEY = 190
"""Bytes of UTF-8."""
LONGEST_INTERVAL = 366 * 86400.0
"""Seconds: the last success is remembered for a little longer."""


class Window(NamedTuple):
    """When a run need not be done again."""

    min_interval: float | None = None
    """Seconds since the last successful run started."""
    once: str | None = None
    """What is done only once: a date, the number of a batch."""
    once_keep: float = 30 * 86400.0
    """Seconds for which that is remembered."""
    mark_at_start: bool = False
    """The window closes when a run starts, whatever becomes of it."""

    @property
    def is_asked_for(self) -> bool:
        return self.min_interval is not None or self.once is not None


def request_timeout(grant: Grant) -> float:
    """Seconds for one of several questions that are asked before the first renewal."""
    return min(3.0, grant.ttl / 6)


def _nothing() -> None:
    pass


def check(window: Window, backend: Backend, grant: Grant, before_each: Callable[[], None] = _nothing) -> None:
    """Right after the grant. ``before_each`` is called before each question, and may raise. Raises Skipped;
    Unavailable, Refused."""
    name, interval, key, timeout = grant.name, window.min_interval, window.once, request_timeout(grant)
    if key is not None:
        before_each()
        if done := backend.marked(name, _ONCE + key, timeout):
            raise Skipped(f"{quoted(name)}: skipped: done for {quoted(key)} already, {_ago(done.age)}")
    for slot, what in ((SUCCESS, "succeeded"), (_STARTED, "begun")) if interval is not None else ():
        before_each()
        last = backend.marked(name, slot, timeout)
        # A mark from farther in the future than that is of a clock that was wrong, and must not stop a job for years.
        if last and interval is not None and -interval < last.age < interval:
            raise Skipped(
                f"{quoted(name)}: skipped: a run that has {what} started {_ago(last.age)}, less than"
                f" {format_duration(interval)}"
            )


def close_at_start(window: Window, backend: Backend, grant: Grant, before_each: Callable[[], None] = _nothing) -> None:
    """Before the command is started. Raises LeaseLost, Unavailable, Refused: then it is not."""
    timeout = request_timeout(grant)
    if window.mark_at_start:
        if window.once is not None:
            before_each()
            backend.mark(grant, Mark(_ONCE + window.once, 0.0, window.once_keep), timeout)
        if window.min_interval is not None:
            before_each()
            backend.mark(grant, Mark(_STARTED, 0.0, SUCCESS_KEPT), timeout)


def marks_of_success(window: Window, ran_for: float) -> tuple[Mark, ...]:
    """What a run that succeeded writes with its release."""
    marks = [Mark(SUCCESS, ran_for, SUCCESS_KEPT)]
    if window.once is not None:
        marks.append(Mark(_ONCE + window.once, ran_for, window.once_keep))
    return tuple(marks)


def _ago(age: float) -> str:
    return f"{format_duration(round(age) if age >= 10 else age)} ago" if age > 0 else "just now"
