"""``--fail-open`` on a fake clock: what ends a child, and what does not."""

from __future__ import annotations

from distlock.backends.base import DistlockError, LeaseLost, Refused, Revoked, Unavailable
from distlock.clock import TICK
from distlock.fail_open import OpenRenewal
from distlock.renewal import Schedule, Told
from fakes import FakeClock, ScriptedBackend, a_client, a_grant

DOWN = Unavailable("no answer")


class Heard:
    """A lease of 30 s from 1000 s on with a grace of 5 s (soft at 1023.2), stepped each tick."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.backend = ScriptedBackend(self.clock)
        self.renewed: list[float] = []
        self.lost: list[str] = []
        self.opened: list[tuple[float, str]] = []
        self.renewal = OpenRenewal(
            self.backend,
            Schedule(a_grant(self.clock()), 5.0),
            self.clock,
            Told(self.renewed.append, self.lost.append, lambda _: None),
            lambda why: self.opened.append((self.clock(), why)),
        )

    def until(self, instant: float, failure: DistlockError | None = None) -> bool:
        """Whether there is anything left to try."""
        self.backend.failure = failure
        while self.clock.now < instant:
            pause = self.renewal.step()
            if pause is None:
                return False
            assert 0 <= pause <= TICK
            self.clock.now += max(pause, 0.01)
        return True


def test_no_answer_until_the_end_goes_on_without_a_lease_and_says_so_before_the_stop_signal() -> None:
    told = Heard()
    assert told.until(1500.0, DOWN)
    ((at, why),) = told.opened
    assert 1022.8 < at < 1023.2
    assert why == "no answer"
    assert told.lost == []


def test_a_blip_is_as_ever() -> None:
    told = Heard()
    assert told.until(1015.0, DOWN)
    assert told.until(1100.0)
    assert told.opened == []
    assert told.lost == []
    assert told.renewed


def test_an_answer_in_time_of_a_lease_that_is_still_ours_goes_on_as_ever() -> None:
    told = Heard()
    assert told.until(1025.0, DOWN)
    assert told.opened
    assert told.until(1060.0)
    assert told.renewed
    assert not told.renewal.is_open
    assert told.until(1200.0, DOWN), "and open again, the next time"
    assert len(told.opened) == 2


def test_one_that_ran_out_and_is_nobodys_ends_nothing() -> None:
    told = Heard()
    assert told.until(1025.0, DOWN)
    told.backend.free()
    told.backend.inspect_failure = None

    def gone(*_: object) -> None:
        raise LeaseLost("it ran out")

    told.backend.on_renew = gone  # type: ignore[assignment]
    assert told.until(1200.0)
    assert told.lost == []
    told.backend.hold(a_client("another"))
    assert not told.until(1300.0)
    assert told.lost == ["it ran out"]


def test_one_that_was_taken_away_ends_the_child() -> None:
    told = Heard()
    assert told.until(1025.0, DOWN)

    def revoked(*_: object) -> None:
        raise Revoked("an operator released it: alice@ops1")

    told.backend.on_renew = revoked  # type: ignore[assignment]
    assert not told.until(1100.0)
    assert told.renewal.revoked
    assert told.lost == ["an operator released it: alice@ops1"]


def test_a_bad_answer_is_no_missing_one() -> None:
    """A backend that refuses is there: the lease ends as ever."""
    told = Heard()
    told.until(1500.0, Refused("no permission"))
    assert told.opened == []
    assert len(told.lost) == 1


def test_a_freeze_says_nothing_of_the_backend() -> None:
    told = Heard()
    assert told.until(1012.0, DOWN)
    told.clock.now = 1100.0
    told.renewal.step()
    assert told.opened == []
    assert len(told.lost) == 1
