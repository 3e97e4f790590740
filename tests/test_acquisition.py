"""Getting the lock, on a fake clock: how often and how long it is tried, and that the queue is always left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.acquisition import FIRST_CONTACT, Acquisition, Waiting, pause
from distlock.backends.base import Busy, Grant, Holding, LockState, OtherHolders, Refused, Request, Unavailable
from distlock.errors import Cancelled, NestedRun
from distlock.holders import describe
from fakes import FakeClock, ScriptedBackend, a_client

DOWN = Unavailable("no answer")


class World:
    """A backend, its clock, which starts at 0 here, and a cancel descriptor."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.start = self.clock()
        self.backend = ScriptedBackend(self.clock)
        self.cancel, self._write_cancel = os.pipe()
        self.pauses: list[float] = []
        self.asked_at: list[float] = []

    def close(self) -> None:
        os.close(self.cancel)
        os.close(self._write_cancel)

    def at(self, seconds: float, event: Callable[[], object]) -> None:
        self.clock.at(self.start + seconds, event)

    @property
    def passed(self) -> float:
        return self.clock() - self.start

    def times(self, request: str) -> list[float]:
        return [instant - self.start for instant in self.backend.times(request)]

    def give_up(self) -> None:
        os.write(self._write_cancel, b".")

    def acquire(
        self,
        wait: float | None = None,
        jitter: float = 0.0,
        outer: tuple[str, ...] = (),
        *,
        qualify: Callable[[], None] | None = None,
        explain: bool = True,
        on_waiting: Callable[[LockState], None] | None = None,
        holders: int = 1,
    ) -> Grant:
        def remembered(seconds: float, cancel: int) -> None:
            self.pauses.append(seconds)
            self.clock.pause(seconds, cancel)

        return Acquisition(
            self.backend,
            Request("nightly", 30.0, a_client("me"), holders),
            Waiting(wait, jitter, outer),
            self.cancel,
            self.clock,
            on_asking=lambda: self.asked_at.append(self.clock()),
            qualify=qualify,
            explain=explain,
            on_waiting=on_waiting,
            pause=remembered,
        ).run()

    def fails(self, kind: type[Exception], wait: float | None = None, outer: tuple[str, ...] = ()) -> Exception:
        with pytest.raises(kind) as caught:
            self.acquire(wait, outer=outer)
        assert type(caught.value) is kind
        return caught.value


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    assert all(ticket.closed for ticket in made.backend.tickets), "a place in the queue was not given up"
    made.close()


# -- a lock that is free, or becomes so ----------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [None, 0.0, 5.0])
def test_a_free_lock_is_had_at_once_and_nothing_else_is_asked(world: World, wait: float | None) -> None:
    grant = world.acquire(wait, outer=("outer",))
    assert grant == Grant("nightly", "me", 42, 30.0, world.start)
    assert [request for _, request in world.backend.log] == ["enqueue", "poll"]


@pytest.mark.parametrize("wait", [None, 5.0])
def test_a_lock_that_becomes_free_is_had_then_from_the_same_place_in_the_queue(
    world: World, wait: float | None
) -> None:
    world.backend.hold(a_client("another"))
    world.at(4.5, world.backend.free)
    assert world.acquire(wait).valid_from == world.start + 4.5
    assert len(world.backend.tickets) == 1


def test_without_a_limit_it_waits_for_days(world: World) -> None:
    world.backend.hold(a_client("another"))
    world.at(250_000.0, world.backend.free)
    world.acquire(None)
    assert world.passed == 250_000.0


def test_waking_for_nothing_is_no_reason_to_give_up_or_to_queue_again(world: World) -> None:
    world.backend.hold(a_client("another"))
    world.at(1.0, world.backend.nudge)
    world.at(1.5, world.backend.nudge)
    assert "not had within 5s" in str(world.fails(Busy, 5.0))
    assert world.times("poll") == [0.0, 1.0, 1.5, 5.0]
    assert len(world.backend.tickets) == 1


# -- the end of the wait -------------------------------------------------------------------------------------------


def test_no_wait_is_a_single_try(world: World) -> None:
    world.backend.hold(a_client("another"))
    world.fails(Busy, 0.0)
    assert world.passed == 0.0
    assert [request for _, request in world.backend.log] == ["enqueue", "poll", "inspect"]


@pytest.mark.parametrize("wait", [0.1, 0.25, 1.5, 20.0, 7200.0])
def test_the_wait_ends_when_it_was_to_end_after_a_last_try(world: World, wait: float) -> None:
    world.backend.hold(a_client("another"))
    world.fails(Busy, wait)
    assert world.passed == pytest.approx(wait, abs=1e-6)
    assert world.times("poll")[-1] == pytest.approx(wait, abs=1e-6)


@given(st.floats(0.001, 1e6), st.floats(0.0, 2e6))
def test_had_if_and_only_if_it_is_free_in_time(wait: float, freed: float) -> None:
    world = World()
    try:
        world.backend.hold(a_client("another"))
        world.at(freed, world.backend.free)
        try:
            world.acquire(wait, explain=False)
        except Busy:
            assert freed > wait - 1e-6
        else:
            assert freed <= wait + 1e-6
        assert world.passed == pytest.approx(min(wait, freed), abs=1e-6)
    finally:
        world.close()


def test_the_conflict_names_the_lock_the_wait_the_holder_since_and_token(world: World) -> None:
    world.backend.hold(a_client("another", label="a\nb"))
    assert str(world.fails(Busy, 1.5)) == (
        "'nightly': not had within 1.5s: held by web1:4711 (deploy) 'a\\nb' since 2023-11-14T22:13:20Z, token 41"
    )


def test_a_single_try_speaks_of_no_wait(world: World) -> None:
    world.backend.hold(a_client("another"))
    assert str(world.fails(Busy, 0.0)) == ("'nightly': held by web1:4711 (deploy) since 2023-11-14T22:13:20Z, token 41")


def test_nobody_is_asked_for_a_conflict_that_nobody_will_read(world: World) -> None:
    world.backend.hold(a_client("another"))
    with pytest.raises(Busy, match=r"^'nightly': held by somebody else$"):
        world.acquire(0.0, explain=False)
    assert world.times("inspect") == []


@pytest.mark.parametrize("failure", [DOWN, Refused("may not look")])
def test_a_holder_that_cannot_be_asked_for_leaves_the_conflict_a_conflict(world: World, failure: Exception) -> None:
    world.backend.hold(a_client("another"))
    world.backend.inspect_failure = failure
    assert str(world.fails(Busy, 0.0)) == "'nightly': held by somebody else"


@pytest.mark.parametrize(
    ("held", "token", "named", "phrase"),
    [
        (True, 5, True, "held by web1:4711 (deploy) since 2023-11-14T22:13:20Z, token 5"),
        (True, 0, True, "held by web1:4711 (deploy) since 2023-11-14T22:13:20Z, token 0"),
        (True, None, True, "held by web1:4711 (deploy) since 2023-11-14T22:13:20Z"),
        (True, 5, False, "held by somebody unknown, token 5"),
        (True, None, False, "held by somebody unknown"),
        (False, 5, False, "free now, or about to go to a waiter before this one"),
    ],
)
def test_a_state_in_one_phrase(held: bool, token: int | None, named: bool, phrase: str) -> None:
    holder = a_client("another") if named else None
    assert describe(LockState("nightly", held, token, holder, 30.0, 20.0, ())) == phrase


# -- a backend that does not answer --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wait", "until"), [(None, FIRST_CONTACT), (3600.0, FIRST_CONTACT), (2.5, 2.5), (0.3, 0.3), (10.0, 10.0)]
)
def test_first_contact_is_retried_for_the_wait_but_ten_seconds_at_most(
    world: World, wait: float | None, until: float
) -> None:
    world.backend.failure = DOWN
    assert world.fails(Unavailable, wait) is DOWN
    assert world.passed == pytest.approx(until, abs=1e-6)
    assert world.times("enqueue")[-1] == pytest.approx(until, abs=1e-6)


def test_first_contact_is_tried_once_without_a_wait(world: World) -> None:
    world.backend.failure = DOWN
    world.fails(Unavailable, 0.0)
    assert world.times("enqueue") == [0.0]


def test_tries_come_soon_at_first_and_never_more_than_a_second_apart(world: World) -> None:
    world.backend.failure = DOWN
    world.fails(Unavailable, 3600.0)
    tries = world.times("enqueue")
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert gaps[0] <= 0.1
    assert max(gaps) <= 1.0
    assert len(tries) < 30
    assert len({round(gap, 6) for gap in gaps}) > len(gaps) / 2, "a fleet would try in step"


def test_a_backend_that_comes_back_in_time_is_no_error(world: World) -> None:
    world.backend.failure = DOWN
    world.at(9.0, lambda: world.backend.fail(None))
    assert world.acquire(None).token == 42
    assert 9.0 <= world.passed <= 10.0


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("failure", [Unavailable("is no server", permanent=True), Refused("wrong password")])
def test_what_waiting_cannot_repair_is_not_tried_again(world: World, failure: Exception, answered: bool) -> None:
    if answered:
        world.backend.hold(a_client("another"))
        world.at(3.0, lambda: world.backend.fail(failure))
    else:
        world.backend.failure = failure
    assert world.fails(type(failure), 60.0) is failure
    assert world.passed == (3.0 if answered else 0.0)
    assert len(world.times("enqueue")) == 1


@pytest.mark.parametrize("wait", [30.0, 3600.0])
def test_a_backend_lost_while_waiting_is_tried_until_the_wait_ends(world: World, wait: float) -> None:
    world.backend.hold(a_client("another"))
    world.at(3.0, lambda: world.backend.fail(DOWN))
    world.fails(Unavailable, wait)
    assert world.passed == pytest.approx(wait, abs=1e-6)


def test_a_backend_lost_while_waiting_without_limit_is_tried_for_as_long_as_it_takes(world: World) -> None:
    world.backend.hold(a_client("another"))
    world.at(3.0, lambda: world.backend.fail(DOWN))
    world.at(999.0, world.backend.free)
    world.at(1000.0, lambda: world.backend.fail(None))
    world.acquire(None)
    assert 1000.0 <= world.passed <= 1001.0


def test_a_new_place_in_the_queue_after_the_loss_and_the_old_one_is_given_up(world: World) -> None:
    world.backend.hold(a_client("another"))
    world.at(3.0, lambda: world.backend.fail(DOWN))
    world.at(6.0, lambda: world.backend.fail(None))
    world.at(9.0, world.backend.free)
    assert world.acquire(20.0).valid_from == world.start + 9.0
    assert [ticket.closed for ticket in world.backend.tickets] == [True, True]


def test_a_wait_that_ends_on_a_backend_that_is_back_ends_as_a_conflict(world: World) -> None:
    world.backend.hold(a_client("another"))
    world.at(3.0, lambda: world.backend.fail(DOWN))
    world.at(6.0, lambda: world.backend.fail(None))
    world.fails(Busy, 20.0)
    assert world.passed == pytest.approx(20.0, abs=1e-6)


# -- several holders -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("theirs", "ours"), [(1, 2), (3, 1), (3, 2)])
@pytest.mark.parametrize("wait", [None, 0.0])
def test_another_number_of_holders_is_no_conflict_and_ends_the_wait_at_once(
    world: World, theirs: int, ours: int, wait: float | None
) -> None:
    world.backend.hold(a_client("another"))
    world.backend.max_holders = theirs
    with pytest.raises(OtherHolders, match=r"^'nightly' is held "):
        world.acquire(wait, holders=ours)
    assert world.passed == 0.0
    assert world.times("inspect") == [], "nobody has to be asked who it is"


def test_another_number_while_waiting(world: World) -> None:
    world.backend.hold(a_client("another"))

    def by_others() -> None:
        world.backend.max_holders = 3
        world.backend.nudge()

    world.at(2.0, by_others)
    with pytest.raises(OtherHolders):
        world.acquire(None)
    assert world.passed == 2.0


@pytest.mark.parametrize("theirs", [1, 3])
@pytest.mark.parametrize("ours", [1, 2, 3])
def test_a_nested_run_is_refused_as_such_whatever_its_number(world: World, theirs: int, ours: int) -> None:
    world.backend.hold(a_client("outer"))
    world.backend.max_holders = theirs
    with pytest.raises(NestedRun):
        world.acquire(None, outer=("outer",), holders=ours)
    assert world.passed == 0.0


def test_a_nested_run_gets_no_free_place_either(world: World) -> None:
    world.backend.max_holders = 3
    world.backend.others = (Holding(2, 7, a_client("outer"), 30.0, 20.0),)
    with pytest.raises(NestedRun):
        world.acquire(None, outer=("outer",), holders=3)
    assert world.times("poll") == []
    assert world.acquire(None, outer=("other",), holders=3).token == 42


# -- nobody wants the lock any more --------------------------------------------------------------------------------


def test_cancelled_at_once_while_waiting_for_the_holder(world: World) -> None:
    world.backend.hold(a_client("another"))
    world.at(2.0, world.give_up)
    world.fails(Cancelled, None)
    assert world.passed == 2.0
    assert len(world.times("poll")) == 1, "a grant that nobody wants any more could have come of it"


def test_cancelled_at_once_while_the_backend_is_away(world: World) -> None:
    world.backend.failure = DOWN
    world.at(2.0, world.give_up)
    world.fails(Cancelled, None)
    assert world.passed == 2.0


def test_cancelled_at_once_during_the_jitter_before_anything_is_asked(world: World) -> None:
    world.give_up()
    with pytest.raises(Cancelled):
        world.acquire(None, jitter=60.0)
    assert world.passed == 0.0
    assert world.backend.log == []


def test_cancelled_though_the_lock_becomes_free_in_the_same_instant(world: World) -> None:
    world.backend.hold(a_client("another"))

    def both() -> None:
        world.give_up()
        world.backend.free()

    world.at(2.0, both)
    world.fails(Cancelled, None)
    assert not world.backend.held


def test_the_real_pause_ends_at_once_when_cancelled() -> None:
    reading, writing = os.pipe()
    try:
        pause(0.0, reading)
        pause(-1.0, reading)
        os.write(writing, b".")
        for seconds in (0.0, 3600.0):
            with pytest.raises(Cancelled):
                pause(seconds, reading)
    finally:
        os.close(reading)
        os.close(writing)


def test_the_real_pause_ends_at_once_when_the_supervisor_is_dead() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    try:
        with pytest.raises(Cancelled):
            pause(3600.0, reading)
    finally:
        os.close(reading)


@pytest.mark.parametrize("failure", [ZeroDivisionError(), KeyboardInterrupt()])
def test_the_queue_is_left_whatever_comes(world: World, failure: BaseException) -> None:
    world.backend.hold(a_client("another"))
    world.at(3.0, lambda: world.backend.fail(failure))
    with pytest.raises(type(failure)):
        world.acquire(None)
    assert [ticket.closed for ticket in world.backend.tickets] == [True]


# -- jitter --------------------------------------------------------------------------------------------------------


def test_jitter_comes_once_before_the_first_try_and_is_spread_over_its_length() -> None:
    starts = []
    for _ in range(60):
        world = World()
        world.backend.failure = Refused("no")
        with pytest.raises(Refused):
            world.acquire(None, jitter=8.0)
        starts += world.times("enqueue")
        world.close()
    assert len(starts) == 60
    assert min(starts) >= 0.0
    assert max(starts) <= 8.0
    assert min(starts) < 2.0
    assert max(starts) > 6.0


def test_without_jitter_there_is_no_pause(world: World) -> None:
    world.acquire(None)
    assert world.pauses == []


def test_the_wait_counts_from_after_the_jitter(world: World) -> None:
    world.backend.hold(a_client("another"))
    with pytest.raises(Busy):
        world.acquire(5.0, jitter=100.0)
    first = world.times("enqueue")[0]
    assert world.passed - first == pytest.approx(5.0, abs=1e-6)
    assert [instant - world.start for instant in world.asked_at] == [first]


# -- the holder as seen by a waiter --------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", [None, 0.0, 60.0])
@pytest.mark.parametrize("outer", [("another",), ("first", "another"), ("another", "last")])
def test_a_run_inside_the_holder_is_refused_at_once(world: World, wait: float | None, outer: tuple[str, ...]) -> None:
    world.backend.hold(a_client("another"))
    error = world.fails(NestedRun, wait, outer)
    assert "'nightly' is held by the run that this one is inside of" in str(error)
    assert isinstance(error, Busy)
    assert world.passed == 0.0


@pytest.mark.parametrize("holder", [a_client("another"), None])
def test_a_run_inside_of_another_lock_s_holder_waits_as_any(world: World, holder: object) -> None:
    world.backend.hold(a_client("another") if holder else None)
    world.at(4.0, world.backend.free)
    world.acquire(None, outer=("outer", "anoth"))
    assert world.passed == 4.0


def test_that_it_waits_is_told_once_and_only_if_it_does(world: World) -> None:
    told: list[tuple[float, str]] = []

    def tell(state: LockState) -> None:
        told.append((world.passed, describe(state)))

    world.backend.hold(a_client("another"))
    world.at(3.0, lambda: world.backend.fail(DOWN))
    world.at(6.0, lambda: world.backend.fail(None))
    world.at(9.0, world.backend.free)
    world.acquire(None, on_waiting=tell)
    assert told == [(0.0, "held by web1:4711 (deploy) since 2023-11-14T22:13:20Z, token 41")]
    told.clear()
    world.backend.free()
    world.acquire(None, on_waiting=tell)
    assert told == []


def test_a_waiter_that_needs_not_know_the_holder_does_not_ask(world: World) -> None:
    world.backend.hold(a_client("another"))
    world.at(4.0, world.backend.free)
    world.acquire(None)
    assert world.times("inspect") == []


# -- a backend that will not do ------------------------------------------------------------------------------------


def test_a_backend_that_will_not_do_is_not_asked_for_the_lock(world: World) -> None:
    def qualify() -> None:
        raise Refused("it forgets")

    with pytest.raises(Refused, match="it forgets"):
        world.acquire(None, qualify=qualify)
    assert world.backend.log == []


def test_one_that_cannot_say_is_asked_again_and_one_that_said_it_is_not(world: World) -> None:
    asked: list[float] = []

    def qualify() -> None:
        asked.append(world.passed)
        if len(asked) < 3:
            raise DOWN

    world.backend.hold(a_client("another"))
    world.at(4.0, lambda: world.backend.fail(DOWN))
    world.at(5.0, lambda: world.backend.fail(None))
    world.at(5.0, world.backend.free)
    world.acquire(None, qualify=qualify)
    assert len(asked) == 3
    assert len(world.backend.tickets) == 2


@pytest.mark.parametrize("impatient", [True, False])
def test_a_backend_that_goes_away_while_we_wait_is_given_up_by_the_impatient_alone(
    world: World, impatient: bool
) -> None:
    world.backend.hold(a_client("another"))
    world.at(100.0, lambda: world.backend.fail(DOWN))
    world.at(5000.0, lambda: world.backend.fail(None))
    world.at(5000.0, world.backend.free)
    request, waiting = Request("nightly", 30.0, a_client("me")), Waiting(None, 0.0, (), impatient)
    acquisition = Acquisition(world.backend, request, waiting, world.cancel, world.clock, pause=world.clock.pause)
    if impatient:
        with pytest.raises(Unavailable):
            acquisition.run()
        assert world.passed < 200
    else:
        assert acquisition.run()
        assert world.passed >= 5000
