"""Keeping a lease: when to renew, what a failed renewal means, and telling once when it is over.

A failure is tried again until the soft deadline, since a blip shorter than the lease must not end a job. "Not the
owner" is final at once. An exception that nobody foresaw counts as lost: a renewal that died in silence would let the
lease run out under a running child.

An engine that is told about a lease (a watch, a session's end) has an alarm. It is no more than a reason to renew at
once: what the lease is worth, only a renewal says.
"""

from __future__ import annotations

import math
import os
import random
import select
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from .backends.base import DistlockError, LeaseLost, Revoked, Unavailable
from .clock import TICK
from .deadline import hard_deadline

if TYPE_CHECKING:
    from .backends.base import Backend, Grant


class Schedule:
    """The instants of one lease. Pure: it is told the time and reads no clock."""

    def __init__(self, grant: Grant, grace: float, chance: Callable[[], float] = random.random) -> None:
        self._grace = grace
        self._chance = chance
        self.failures = 0
        self.renewed(grant)

    def renewed(self, grant: Grant) -> None:
        self.grant = grant
        self.hard = hard_deadline(grant.valid_from, grant.ttl)
        self.soft = self.hard - self._grace
        self.next_try = grant.valid_from + grant.ttl / 3 * (0.9 + 0.1 * self._chance())
        self.failures = 0

    def failed(self, now: float) -> None:
        self.failures += 1
        self.next_try = now + self.grant.ttl / 20 * (0.5 + 0.5 * self._chance())

    def hurry(self, now: float) -> None:
        """Renew now, if it was to be later."""
        self.next_try = min(self.next_try, now)

    def timeout(self, now: float) -> float:
        """What a request sent now may take: half of what is left until soft, so that one swallowed by a dead connection
        leaves time for another on a new one, and no longer than the time between two renewals."""
        return max(0.1, min((self.soft - now) / 2, self.grant.ttl / 3))


class Told(NamedTuple):
    """Who is told what of a renewal, by its thread."""

    on_renewed: Callable[[float], None]
    """Each new hard deadline."""
    on_lost: Callable[[str], None]
    """The reason, once."""
    on_trouble: Callable[[str], None]
    """A line for each failed attempt."""
    on_answer: Callable[[float, float], None] | None = None
    """How many seconds an answer took, and how many were left until soft."""


class Renewal:
    """A thread that keeps one lease."""

    def __init__(self, backend: Backend, schedule: Schedule, clock: Callable[[], float], told: Told) -> None:
        self._backend = backend
        self._schedule = schedule
        self._clock = clock
        self._on_renewed, self._on_lost, self._on_trouble, self._on_answer = told
        self._stopped = False
        self._woken = -1  # readable once nothing is to be renewed any more
        self._deaf_until = 0.0
        self._requests = threading.Lock()  # held while one may be under way
        self._last_trouble = "no renewal was answered"
        self.is_open = False
        """Whether the child goes on though the lease is over (fail_open.py)."""
        self.open_because = ""
        """Why, while it does."""
        self.unreachable = False
        """Whether the last attempt had no answer, rather than a bad one."""
        self.lost = False
        self.revoked = False
        """Lost, and yet to be given back once the child is dead: nobody else gets the lock before."""
        self.survivors = False
        """Set by the owner of the thread when something of the child cannot be killed: renewing then goes on past the
        deadline, for as long as the server lets us nobody else should be granted the lock."""
        self._thread = threading.Thread(target=self._run, name="renewal", daemon=True)

    def start(self) -> None:
        """Does nothing if it is started."""
        if self._woken >= 0:
            return
        self._woken = os.eventfd(0, os.EFD_CLOEXEC)  # open as long as the process: the thread may outlive us
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """No request is sent after this. False if one is still under way after ``timeout`` seconds. The thread itself
        may end a little later: who hands a lock over does not wait for that."""
        if self._woken < 0:
            return True  # never started
        self._stopped = True
        os.eventfd_write(self._woken, 1)
        quiet = self._requests.acquire(timeout=timeout)
        if quiet:
            self._requests.release()
        return quiet

    @property
    def grant(self) -> Grant:
        return self._schedule.grant

    @property
    def over(self) -> bool:
        """By the clock; what came of it may yet be to be told."""
        return self._clock() >= self._schedule.hard

    def _lose(self, reason: str) -> None:
        if not self.lost:
            self.lost = True
            self._on_lost(reason)

    def _was_revoked(self, error: LeaseLost) -> bool:
        self.revoked = isinstance(error, Revoked)
        return self.revoked

    def _run(self) -> None:
        try:
            while True:
                with self._requests:
                    if self._stopped:
                        return
                    pause = self.step()
                    alarm = self._backend.alarm(self.grant)
                if pause is None:
                    return
                self._wait(pause, alarm)
        except BaseException as error:  # noqa: BLE001 - a thread that died of anything at all has lost the lease
            self._lose(f"the renewal failed inside: {type(error).__name__}: {error}")

    def _wait(self, seconds: float, alarm: int | None) -> None:
        """An alarm that goes on after a renewal is heard no more often than a failed renewal is tried again."""
        look = select.poll()
        look.register(self._woken, select.POLLIN)
        if alarm is not None and self._clock() >= self._deaf_until:
            look.register(alarm, select.POLLIN)
        if any(descriptor == alarm for descriptor, _ in look.poll(math.ceil(seconds * 1000))):
            now = self._clock()
            self._deaf_until = now + self.grant.ttl / 20
            self._schedule.hurry(now)

    def step(self) -> float | None:
        """One look at the clock and at most one request: seconds until the next, None when nothing is left to try."""
        now = self._clock()
        if now >= self._schedule.hard:
            # The clock comes first: after a freeze nothing is sent before the end of the lease is told.
            self._lose(f"it could not be renewed in time ({self._last_trouble})")
        if self.lost and not self.survivors:
            return TICK
        if now >= self._schedule.next_try:
            try:
                grant = self._backend.renew(self._schedule.grant, self._schedule.timeout(now))
            except LeaseLost as error:
                self._was_revoked(error)
                self._lose(str(error))
                return None
            except DistlockError as error:
                self._last_trouble = str(error)
                self.unreachable = isinstance(error, Unavailable)
                self._schedule.failed(self._clock())
                self._on_trouble(f"renewal failed (attempt {self._schedule.failures}): {error}")
            else:
                if self._on_answer:
                    answered = self._clock()
                    self._on_answer(answered - now, self._schedule.soft - answered)
                self._schedule.renewed(grant)
                self.unreachable = False
                if not self.lost:
                    self._on_renewed(self._schedule.hard)
        return max(0.0, min(TICK, self._schedule.next_try - self._clock()))
