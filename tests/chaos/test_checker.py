"""Histories made by hand: the checker finds what is wrong with each, and nothing wrong with a sound one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from . import nemesis
from .checker import NOTHING_STARTED, margins, violations
from .history import Ended, Freeze, History, Life, Write, lives_in, writes_in


def life(first: float, last: float, token: int | None, lock: str = "a", supervisor: int = 1) -> Life:
    steps = max(1, round((last - first) / 0.01))
    stamps = [first + (last - first) * step / steps for step in range(steps + 1)]
    return Life(lock, f"owner-{first}", token, supervisor, stamps)


SOUND = [life(1, 2, 5), life(2.1, 3, 6), life(3.5, 4, 9), life(1.5, 3.5, 1, "b"), life(1, 2, None, "c")]


def test_a_sound_history() -> None:
    writes = {"a": [Write(5, 1.1), Write(5, 1.5), Write(6, 2.2), Write(9, 3.6)]}
    runs = [Ended("a", 1, 0, 1.0, ""), Ended("a", 1, 76, 1.0, "distlock: lease lost"), Ended("b", 2, -9, 1.0, "")]
    assert violations(History(SOUND, writes, runs=runs)) == []
    assert margins(History(SOUND, {})) == pytest.approx([0.1, 0.5])


@pytest.mark.parametrize("tokens", [(5, 6), (None, None)])
def test_two_at_once(tokens: tuple[int | None, int | None]) -> None:
    (found,) = violations(History([life(1, 2, tokens[0]), life(1.9, 3, tokens[1])], {}))
    assert found.startswith("two at once: a: ")
    assert "0.100 s" in found


def test_one_that_outlives_many() -> None:
    assert len(violations(History([life(1, 5, 1), life(2, 3, 2), life(4, 4.5, 3)], {}))) == 2


def test_two_locks_are_two() -> None:
    assert violations(History([life(1, 2, 5), life(1, 2, 5, "b")], {})) == []


@pytest.mark.parametrize(("thawed", "sound"), [(3.0, True), (2.85, True), (2.7, False)])
def test_what_was_frozen_may_be_seen_once_more(thawed: float, sound: bool) -> None:
    frozen = Life("a", "frozen", 5, 7, [1.0, 1.5, 3.01, 3.02])
    history = History([frozen, life(2.5, 4, 6)], {}, [Freeze(7, 1.6, 1.6, thawed, thawed)])
    assert (violations(history) == []) == sound


def test_the_freeze_of_another_run_excuses_nothing() -> None:
    frozen = Life("a", "frozen", 5, 7, [1.0, 1.5, 3.01, 3.02])
    assert violations(History([frozen, life(2.5, 4, 6)], {}, [Freeze(8, 1.6, 1.6, 3.0, 3.0)]))


@pytest.mark.parametrize(
    ("stamp", "sound"), [(1.59, False), (1.602, True), (1.7, False), (2.4, False), (2.99, False), (3.01, True)]
)
def test_a_child_that_was_not_frozen_with_the_others(stamp: float, sound: bool) -> None:
    """What it does between the stop and the thaw is excused by neither."""
    awake = Life("a", "awake", 5, 7, [1.0, 1.5, stamp])
    history = History([awake, life(1.55, 4, 6)], {}, [Freeze(7, 1.6, 1.6, 3.0, 3.0)])
    assert (violations(history) == []) == sound


@pytest.mark.parametrize("tokens", [(6, 5), (5, 5)])
def test_tokens_that_do_not_grow(tokens: tuple[int, int]) -> None:
    found = violations(History([life(1, 2, tokens[0]), life(3, 4, tokens[1])], {}))
    assert any(line.startswith("tokens: a: ") for line in found)


def test_a_fence_that_lets_a_stale_token_pass() -> None:
    (found,) = violations(History([], {"a": [Write(5, 1.0), Write(6, 2.0), Write(5, 3.0)]}))
    assert found == "fence: a: token 5 was accepted after 6"


@pytest.mark.parametrize(
    ("code", "words", "sound"),
    [
        (None, "", False),
        (70, "distlock: internal error: KeyError: 'a'", False),
        (70, NOTHING_STARTED[0], True),
        (70, NOTHING_STARTED[1], True),
        (1, "Traceback (most recent call last): …", False),
        (0, "Traceback (most recent call last): …", False),
        (69, "distlock: the backend does not answer", True),
    ],
)
def test_ends(code: int | None, words: str, sound: bool) -> None:
    assert (violations(History([], {}, runs=[Ended("a", 1, code, 2.0, words)])) == []) == sound


def test_leftovers() -> None:
    assert violations(History([], {}, leftovers=["a process"])) == ["left behind: a process"]


def test_what_children_write_is_read(tmp_path: Path) -> None:
    head = json.dumps({"lock": "a", "owner": "me", "token": 7, "supervisor": 11})
    (tmp_path / "me.life").write_text(f"{head}\n1000000000\n1500000000\n17")  # cut short
    (tmp_path / "unborn.life").write_text(f"{head}\n")
    (tmp_path / "empty.life").write_text("")
    (tmp_path / "a.accepted").write_text("7 1000000000\n7 12")
    assert list(lives_in(tmp_path)) == [Life("a", "me", 7, 11, [1.0, 1.5])]
    assert writes_in(tmp_path) == {"a": [Write(7, 1.0)]}


def test_a_seed_makes_the_same_schedule_again() -> None:
    one = nemesis.schedule(3, 60.0, nemesis.ALL, 3.0)
    assert one == nemesis.schedule(3, 60.0, nemesis.ALL, 3.0)
    assert one != nemesis.schedule(4, 60.0, nemesis.ALL, 3.0)
    assert {fault.what for fault in nemesis.schedule(3, 600.0, nemesis.ALL, 3.0)} == set(nemesis.ALL)
