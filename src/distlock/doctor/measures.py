"""What doctor measures: round trips to the backend, pauses of this machine."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from distlock.backends.base import ConfigurationError, LeaseLost, Refused, Request
from distlock.durations import format_duration

if TYPE_CHECKING:
    from distlock.backends.base import Backend, Client, Grant

SCRATCH = "distlock doctor"
"""One name for all, so that doctors leave one record in a backend."""
_TTL = 10.0
"""Of the scratch lock: longer than it is held, and short for whoever comes after a doctor that was killed."""
_REQUEST = 2.0
_WAIT = 2.0
_RENEWALS = 20
_RENEWING = 1.5
_BREATH = 0.01
_NAP = 0.002


class Trips(NamedTuple):
    of: Literal["renewals", "reads"]
    number: int
    median: float
    longest: float
    """Seconds."""
    acquire: float | None = None
    """From asking for a free lock to the grant; None if it was not free, or not asked for."""
    refusal: str | None = None
    """Why no lock could be taken."""


class Pauses(NamedTuple):
    watched: float
    longest: float
    """Seconds by which a short sleep was longer than it should have been, at worst."""


def shown(seconds: float) -> str:
    """What was measured may be far below the millisecond at which durations end."""
    return format_duration(seconds) if seconds >= 0.01 else f"{seconds * 1000:.2g}ms"


def watch_pauses(seconds: float, clock: Callable[[], float] = time.monotonic) -> Pauses:
    """As a process that sleeps sees them, which is what a renewer and a supervisor do most of the time."""
    begun = now = clock()
    longest = 0.0
    while now < begun + seconds:
        time.sleep(_NAP)
        woken = clock()
        longest = max(longest, woken - now - _NAP)
        now = woken
    return Pauses(now - begun, longest)


def round_trips(backend: Backend, client: Client, clock: Callable[[], float]) -> Trips:
    """Takes the scratch lock, renews it, gives it back. Where it may not, or another doctor has it for too long, reads
    are measured. Ends within some seconds. Raises Unavailable; Refused where reading is refused as well."""
    try:
        found = _renewals(backend, client, clock)
    except Refused as error:
        return _reads(backend, clock)._replace(refusal=str(error))
    return found or _reads(backend, clock)


def _renewals(backend: Backend, client: Client, clock: Callable[[], float]) -> Trips | None:
    begun = clock()
    granted = _take(backend, client, clock)
    if granted is None:
        return None
    grant, at_once = granted
    acquire = clock() - begun
    took: list[float] = []
    try:
        until = clock() + _RENEWING
        while len(took) < _RENEWALS and (not took or clock() < until):
            sent = clock()
            grant = backend.renew(grant, _REQUEST)
            took.append(clock() - sent)
            time.sleep(_BREATH)  # not a burst: renewals come one by one
    except LeaseLost:
        pass  # somebody takes locks away; what was measured counts
    finally:
        backend.release(grant, _REQUEST)
    return _trips("renewals", took)._replace(acquire=acquire if at_once else None) if took else None


def _take(backend: Backend, client: Client, clock: Callable[[], float]) -> tuple[Grant, bool] | None:
    """The grant, and whether it came at once; None if somebody else keeps the lock."""
    reading, writing = os.pipe()
    try:
        with backend.enqueue(Request(SCRATCH, _TTL, client)) as ticket:
            if grant := ticket.poll():
                return grant, True
            until = clock() + _WAIT
            while (left := until - clock()) > 0:
                ticket.wait(left, reading)
                if grant := ticket.poll():
                    return grant, False
        return None
    except ConfigurationError:
        return None  # held by a run of the same name that asks for several holders
    finally:
        os.close(reading)
        os.close(writing)


def _reads(backend: Backend, clock: Callable[[], float]) -> Trips:
    took: list[float] = []
    until = clock() + _RENEWING
    while len(took) < _RENEWALS and (not took or clock() < until):
        sent = clock()
        backend.inspect(SCRATCH, _REQUEST)
        took.append(clock() - sent)
        time.sleep(_BREATH)
    return _trips("reads", took)


def _trips(of: Literal["renewals", "reads"], took: list[float]) -> Trips:
    return Trips(of, len(took), statistics.median(took), max(took))
