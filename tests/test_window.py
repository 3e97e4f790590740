"""Once per window: who is skipped, and what is written when."""

from __future__ import annotations

import pytest

from distlock.backends.base import SUCCESS, Mark, Marked
from distlock.errors import Skipped
from distlock.window import Window, check, close_at_start, marks_of_success
from fakes import FakeClock, ScriptedBackend, a_grant

DAY = 86400.0
GRANT = a_grant(1000.0)


class Remembering(ScriptedBackend):  # type: ignore[misc]  # final for everybody else
    """With marks, whose ages the test writes down."""

    def __init__(self, **ages: float) -> None:
        super().__init__(FakeClock())
        self.ages = {slot.replace("_", ":"): age for slot, age in ages.items()}
        self.written: list[Mark] = []

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        assert (name, timeout > 0) == (GRANT.name, True)
        return Marked(1e9, self.ages[slot]) if slot in self.ages else None

    def mark(self, grant: object, mark: Mark, timeout: float) -> None:
        assert (grant, timeout > 0) == (GRANT, True)
        self.written.append(mark)


def skipped(window: Window, backend: Remembering) -> str:
    with pytest.raises(Skipped) as caught:
        check(window, backend, GRANT)
    return str(caught.value)


@pytest.mark.parametrize("slot", ["success", "started"])
def test_the_interval(slot: str) -> None:
    window = Window(min_interval=DAY)
    check(window, Remembering(), GRANT)
    check(window, Remembering(**{slot: DAY}), GRANT)
    check(Window(), Remembering(**{slot: 1.0}), GRANT)
    assert "23h59m ago, less than 1d" in skipped(window, Remembering(**{slot: DAY - 1}))
    assert "just now" in skipped(window, Remembering(**{slot: -30.0})), "another host's clock is ahead of ours"
    check(window, Remembering(**{slot: -3650 * DAY}), GRANT)  # and this one was wrong: no job is stopped for ten years


def test_the_key() -> None:
    window = Window(once="2026-11-30")
    check(window, Remembering(), GRANT)
    check(window, Remembering(once_=1.0, success=1.0), GRANT)
    check(window, Remembering(**{"once_2026-12-01": 1.0}), GRANT)
    said = skipped(window, Remembering(**{"once_2026-11-30": 3 * 3600.0 + 120}))
    assert said == "'nightly': skipped: done for '2026-11-30' already, 3h2m ago"


def test_what_is_written_at_the_start() -> None:
    for window in (Window(), Window(1.0, "x"), Window(mark_at_start=True)):
        backend = Remembering()
        close_at_start(window, backend, GRANT)
        assert backend.written == []
    backend = Remembering()
    close_at_start(Window(60.0, "x", 5 * DAY, mark_at_start=True), backend, GRANT)
    assert [(mark.slot, mark.ago) for mark in backend.written] == [("once:x", 0.0), ("started", 0.0)]
    assert backend.written[0].keep == 5 * DAY
    assert backend.written[1].keep > 366 * DAY


def test_what_a_success_writes() -> None:
    (mark,) = marks_of_success(Window(min_interval=5.0), 12.5)
    assert (mark.slot, mark.ago) == (SUCCESS, 12.5)
    assert mark.keep > 366 * DAY
    _, once = marks_of_success(Window(once="x", once_keep=7.0), 12.5)
    assert once == Mark("once:x", 12.5, 7.0)
