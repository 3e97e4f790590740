"""Keeping a lease, on a fake clock: when it is renewed, when it is over, and that the end is told once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from distlock.backends.base import Grant, LeaseLost, Refused, Unavailable
from distlock.clock import TICK
from distlock.deadline import SHORTEST_TTL, longest_grace
from distlock.renewal import Renewal, Schedule, Told
from fakes import FakeClock, ScriptedBackend, a_grant

ttls = st.floats(SHORTEST_TTL, 1e6)
chances = st.floats(0.0, 1.0, exclude_max=True)
instants = st.floats(0.0, 1e7)


def exactly(instant: float) -> object:
    return pytest.approx(instant, rel=0, abs=1e-5)


def hard_by_hand(valid_from: float, ttl: float) -> float:
    return valid_from + 0.99 * ttl - max(0.5, 0.05 * ttl)


# -- the schedule --------------------------------------------------------------------------------------------------


@given(ttls, instants, chances)
def test_a_renewal_is_due_a_little_before_a_third_of_the_ttl(ttl: float, valid_from: float, chance: float) -> None:
    schedule = Schedule(a_grant(valid_from, ttl), 0.0, lambda: chance)
    assert valid_from + 0.29 * ttl <= schedule.next_try <= valid_from + ttl / 3


@given(ttls, instants, st.lists(chances, min_size=2, max_size=30))
def test_a_failed_one_is_due_again_within_a_twentieth(ttl: float, now: float, chances: list[float]) -> None:
    chance = iter(chances)
    schedule = Schedule(a_grant(now, ttl), 0.0, lambda: next(chance))
    for count in range(1, len(chances)):
        schedule.failed(now)
        assert now + ttl / 41 < schedule.next_try <= now + ttl / 20
        assert schedule.failures == count


def test_renewals_of_a_fleet_are_spread() -> None:
    due = {Schedule(a_grant(0.0), 0.0).next_try for _ in range(50)}
    assert len(due) > 40
    assert max(due) - min(due) > 0.5


def test_a_request_leaves_time_for_another_before_soft_and_for_the_next_renewal() -> None:
    schedule = Schedule(a_grant(1000.0, 30.0), 5.0)
    assert schedule.hard == exactly(1028.2)
    assert schedule.soft == exactly(1023.2)
    assert schedule.timeout(1002.0) == exactly(10.0)
    assert schedule.timeout(1009.0) == exactly(7.1)
    assert schedule.timeout(1020.0) == exactly(1.6)
    assert schedule.timeout(1023.1) == exactly(0.1)
    assert schedule.timeout(1028.0) == exactly(0.1)


# -- any sequence of answers ---------------------------------------------------------------------------------------


class AnyLease(RuleBasedStateMachine):
    """One lease under a renewal that is stepped by hand, beside a model that knows only what is promised."""

    @initialize(ttl=ttls, start=instants, grace=st.floats(0.0, 1.0), chance=chances)
    def grant(self, ttl: float, start: float, grace: float, chance: float) -> None:
        self.clock = FakeClock()
        self.clock.now = start
        self.backend = ScriptedBackend(self.clock)
        self.ttl = ttl
        self.grace = grace * longest_grace(ttl)
        self.chance = chance
        self.valid_from = start
        self.told: list[str] = []
        self.renewed: list[float] = []
        self.troubles: list[str] = []
        self.finished = False
        self.not_owner = False
        self.schedule = Schedule(a_grant(start, ttl), self.grace, lambda: self.chance)
        self.renewal = Renewal(
            self.backend,
            self.schedule,
            self.clock,
            Told(self.renewed.append, self.told.append, self.troubles.append),
        )

    @property
    def hard(self) -> float:
        return hard_by_hand(self.valid_from, self.ttl)

    @rule(share=st.floats(0.0, 0.4), chance=chances)
    def time_passes(self, share: float, chance: float) -> None:
        self.clock.now += share * self.ttl
        self.chance = chance

    @rule()
    def a_suspend(self) -> None:
        self.clock.now += 10 * self.ttl

    @rule(late=st.sampled_from([-0.001, 0.0, 0.001]))
    def it_wakes_at_the_next_try(self, late: float) -> None:
        self.clock.now = max(self.clock.now, self.schedule.next_try + late)

    @rule(late=st.sampled_from([-0.001, 0.0, 0.001]))
    def it_wakes_at_the_hard_deadline(self, late: float) -> None:
        self.clock.now = max(self.clock.now, self.hard + late)

    @rule(survivors=st.booleans())
    def something_cannot_be_killed(self, survivors: bool) -> None:
        self.renewal.survivors = survivors

    @precondition(lambda self: not self.finished)
    @rule(latency=st.floats(0.0, 1.2))
    def answered(self, latency: float) -> None:
        def renew(grant: Grant, timeout: float) -> Grant:
            self._request(grant, timeout)
            sent = self.clock.now
            self.clock.now += latency * self.ttl  # it may come late: the process was stopped
            self.valid_from = sent
            return grant._replace(valid_from=sent)

        renewed = len(self.renewed)
        lost = len(self.told)
        due = self._step(renew)
        if due:
            assert self.schedule.failures == 0
            assert self.schedule.next_try <= self.valid_from + self.ttl / 3
            assert self.schedule.hard == exactly(self.hard)
        # A lease that was told to be over is not told to be on again.
        told_of = [self.schedule.hard] if due and not lost and not self.told else []
        assert self.renewed[renewed:] == told_of

    @precondition(lambda self: not self.finished)
    @rule(latency=st.floats(0.0, 1.2), refused=st.booleans())
    def not_answered(self, latency: float, refused: bool) -> None:
        def renew(grant: Grant, timeout: float) -> Grant:
            self._request(grant, timeout)
            self.clock.now += latency * self.ttl
            raise Refused("may not") if refused else Unavailable("no answer")

        before = len(self.troubles)
        failures = self.schedule.failures
        if self._step(renew):
            assert self.schedule.failures == failures + 1
            assert self.clock.now < self.schedule.next_try <= self.clock.now + self.ttl / 20
            assert len(self.troubles) == before + 1
            assert f"attempt {failures + 1}" in self.troubles[-1]

    @precondition(lambda self: not self.finished)
    @rule()
    def another_owns_it(self) -> None:
        def renew(grant: Grant, timeout: float) -> Grant:
            self._request(grant, timeout)
            self.not_owner = True
            raise LeaseLost("it is another's")

        if self._step(renew):
            assert self.finished
            assert self.told

    def _request(self, grant: Grant, timeout: float) -> None:
        now = self.clock.now
        assert now < self.hard or self.renewal.survivors, "sent after the end of the lease"
        assert not self.renewal.lost or self.renewal.survivors, "sent for a lease that is lost"
        assert now >= self.schedule.next_try
        assert grant.valid_from == self.valid_from, "another than the last grant"
        soft = self.hard - self.grace
        assert timeout == exactly(0.1) or now + timeout <= soft + 1e-6
        assert 0.1 <= timeout <= max(0.1, self.ttl / 3)
        assert timeout == exactly(0.1) or timeout <= (soft - now) / 2 + 1e-6

    def _step(self, renew: object) -> bool:
        """Whether a request was sent."""
        self.backend.on_renew = renew  # type: ignore[assignment]
        now = self.clock.now
        over = now >= self.hard
        was_due = now >= self.schedule.next_try and (self.renewal.survivors or not (self.told or over))
        before = len(self.backend.log)
        pause = self.renewal.step()
        sent = len(self.backend.log) - before
        assert sent == was_due
        if over:
            assert self.told
        if pause is None:
            assert self.not_owner
            self.finished = True
        else:
            assert 0.0 <= pause <= TICK, "a deadline would be seen too late"
            assert pause > 0.0 or self.clock.now >= self.schedule.next_try
            if not sent and self.renewal.lost:
                assert pause > 0.0, "it would spin"
        return bool(sent)

    @invariant()
    def the_end_is_told_once_and_every_renewal_before_it(self) -> None:
        assert len(self.told) <= 1
        assert self.renewal.lost == bool(self.told)

    @invariant()
    def the_deadlines_follow_from_the_last_success_alone(self) -> None:
        assert self.schedule.hard == exactly(self.hard)
        assert self.schedule.soft == exactly(self.hard - self.grace)
        assert self.renewal.grant.valid_from == self.valid_from


TestAnyLease = AnyLease.TestCase


# -- what is told --------------------------------------------------------------------------------------------------


class Heard:
    """A renewal of a lease of 30 s from 1000 s on, and what it tells."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = ScriptedBackend(self.clock)
        self.renewed: list[float] = []
        self.lost: list[str] = []
        self.troubles: list[str] = []
        self.answers: list[tuple[float, float]] = []
        self.told = threading.Event()
        self.renewal = Renewal(
            self.backend,
            Schedule(a_grant(self.clock()), 5.0),
            self.clock,
            Told(
                self.renewed.append,
                self._lost,
                self.troubles.append,
                lambda latency, left: self.answers.append((latency, left)),
            ),
        )

    def _lost(self, reason: str) -> None:
        self.lost.append(reason)
        self.told.set()


def test_answers_are_measured_and_failures_are_not() -> None:
    """How long each took, and what was left until the stop signal by the lease before it."""
    told = Heard()

    def slow(grant: Grant, _: float) -> Grant:
        told.clock.now += 2.0
        return grant._replace(valid_from=told.clock.now - 2.0)

    told.backend.on_renew = slow
    told.clock.now += 10.0
    told.renewal.step()
    assert told.answers == [(exactly(2.0), exactly(30 * 0.99 - 1.5 - 5.0 - 12.0))]
    told.backend.failure = Unavailable("blip")
    told.clock.now += 10.0
    told.renewal.step()
    assert len(told.answers) == 1


def test_nothing_is_sent_before_it_is_due() -> None:
    told = Heard()
    told.clock.now += 8.9
    pause = told.renewal.step()
    assert pause is not None
    assert 0.0 < pause <= TICK
    assert told.backend.log == []


def test_each_new_deadline_is_told() -> None:
    told = Heard()
    for _ in range(3):
        told.clock.now += 10.0
        told.renewal.step()
    assert told.renewed == pytest.approx([1038.2, 1048.2, 1058.2], rel=0, abs=1e-5)


def test_the_reason_of_the_loss_names_the_last_trouble() -> None:
    told = Heard()
    told.backend.failure = Unavailable("connection refused by db1")
    told.clock.now += 10.0
    told.renewal.step()
    told.clock.now += 2.0
    told.backend.failure = Unavailable("no answer from db1")
    told.renewal.step()
    assert told.troubles == [
        "renewal failed (attempt 1): connection refused by db1",
        "renewal failed (attempt 2): no answer from db1",
    ]
    told.clock.now += 20.0
    told.renewal.step()
    assert told.lost == ["it could not be renewed in time (no answer from db1)"]


def test_the_reason_of_a_loss_after_a_freeze_speaks_of_no_trouble() -> None:
    told = Heard()
    told.clock.now += 3600.0
    told.renewal.step()
    assert told.lost == ["it could not be renewed in time (no renewal was answered)"]
    assert told.backend.log == []


def test_not_the_owner_is_the_reason_as_the_engine_gave_it() -> None:
    told = Heard()
    told.backend.failure = LeaseLost("'nightly' is held by another")
    told.clock.now += 10.0
    assert told.renewal.step() is None
    assert told.lost == ["'nightly' is held by another"]


def test_while_something_lives_on_the_lease_is_renewed_past_its_end_but_stays_lost() -> None:
    told = Heard()
    told.clock.now += 29.0
    told.renewal.step()
    assert told.backend.log == []
    told.renewal.survivors = True
    told.renewal.step()
    told.clock.now += 10.0
    told.renewal.step()
    assert told.backend.times("renew") == [1029.0, 1039.0]
    assert told.renewed == []
    assert len(told.lost) == 1
    told.renewal.survivors = False
    told.clock.now += 10.0
    told.renewal.step()
    assert len(told.backend.log) == 2


def test_a_lost_lease_does_not_keep_a_processor_busy() -> None:
    """The supervisor may be stopped for hours before it lets the renewer go."""
    told = Heard()
    told.clock.now += 3600.0
    assert [told.renewal.step() for _ in range(3)] == [TICK] * 3


# -- the thread ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), MemoryError("by zero"), SystemExit("by zero")])
def test_an_error_nobody_foresaw_is_a_lost_lease(error: BaseException) -> None:
    told = Heard()
    told.backend.failure = error
    told.clock.now += 10.0
    told.renewal.start()
    assert told.told.wait(20)
    assert told.renewal.stop(20)
    assert told.lost == [f"the renewal failed inside: {type(error).__name__}: by zero"]


def test_an_error_after_the_loss_is_no_second_loss() -> None:
    told = Heard()
    told.clock.now += 29.0
    told.renewal.survivors = True
    told.backend.failure = ZeroDivisionError()
    told.renewal.start()
    told.renewal._thread.join(20)
    assert told.lost == ["it could not be renewed in time (no renewal was answered)"]


def test_the_thread_ends_by_itself_when_another_owns_the_lock() -> None:
    told = Heard()
    told.backend.failure = LeaseLost("another")
    told.clock.now += 10.0
    told.renewal.start()
    told.renewal._thread.join(20)
    assert not told.renewal._thread.is_alive()
    assert told.lost == ["another"]


def test_stopping_does_not_wait_for_the_next_renewal_and_nothing_is_sent_after_it() -> None:
    told = Heard()
    told.renewal.start()
    assert told.renewal.stop(20)
    told.clock.now += 10.0
    assert told.backend.log == []
    assert told.lost == []


def test_stopping_tells_that_a_request_is_still_under_way() -> None:
    told = Heard()
    asked, answer = threading.Event(), threading.Event()

    def renew(grant: Grant, _: float) -> Grant:
        asked.set()
        assert answer.wait(20)
        return grant._replace(valid_from=told.clock())

    told.backend.on_renew = renew
    told.clock.now += 10.0
    told.renewal.start()
    assert asked.wait(20)
    assert not told.renewal.stop(0.0)
    answer.set()
    assert told.renewal.stop(20)
    assert told.renewal.grant.valid_from == 1010.0
    assert told.backend.times("renew") == [1010.0]
    assert told.lost == []


# -- the alarm -----------------------------------------------------------------------------------------------------


@pytest.fixture
def alarm() -> Iterator[int]:
    descriptor = os.eventfd(0)
    yield descriptor
    os.close(descriptor)


def test_an_alarm_has_the_lease_renewed_at_once(alarm: int) -> None:
    told = Heard()
    told.backend.alarm_descriptor = alarm
    told.backend.failure = LeaseLost("its key was removed")
    told.renewal.start()
    assert not told.told.wait(0.05)
    os.eventfd_write(alarm, 1)
    assert told.told.wait(20)
    assert told.lost == ["its key was removed"]
    assert told.backend.times("renew") == [1000.0]


def test_an_alarm_alone_ends_no_lease(alarm: int) -> None:
    told = Heard()
    told.backend.alarm_descriptor = alarm
    renewed = threading.Event()

    def renew(grant: Grant, _: float) -> Grant:
        os.eventfd_read(alarm)
        renewed.set()
        return grant._replace(valid_from=told.clock())

    told.backend.on_renew = renew
    told.renewal.start()
    os.eventfd_write(alarm, 1)
    assert renewed.wait(20)
    assert told.renewal.stop(20)
    assert told.lost == []
    assert told.backend.times("renew") == [1000.0]


def test_an_alarm_that_goes_on_does_not_flood_the_server(alarm: int) -> None:
    told = Heard()
    told.backend.alarm_descriptor = alarm  # nobody takes the news off it
    os.eventfd_write(alarm, 1)
    requests = threading.Semaphore(0)

    def renew(grant: Grant, _: float) -> Grant:
        requests.release()
        return grant._replace(valid_from=told.clock())

    told.backend.on_renew = renew
    told.renewal.start()
    assert requests.acquire(timeout=20)
    assert not requests.acquire(timeout=0.3)
    told.clock.now += 1.6  # a twentieth of the TTL later it is heard again
    assert requests.acquire(timeout=20)
    assert told.renewal.stop(20)
    assert told.lost == []
