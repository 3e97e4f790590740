"""Telling an early process what to do: all of it, without waiting for it, and its end when there is nothing to do."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.account import Keeping
from distlock.supervise.briefing import Briefing
from distlock.supervise.command import Command
from distlock.supervise.plan import DESCENDANTS, Plan
from distlock.window import Window

MEGABYTE = 2**20


@contextmanager
def receiver(briefing: Briefing) -> Iterator[tuple[int, Callable[[], bytes]]]:
    """Its pid, and what it says of the briefing: its length, or None."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        briefing.is_for_me()
        content = briefing.receive()
        os.write(writing, repr(content and (len(content), content[-1])).encode())
        os._exit(0)
    os.close(writing)

    def said() -> bytes:
        os.waitpid(pid, 0)
        return os.read(reading, 100)

    yield pid, said
    os.close(reading)


@pytest.mark.parametrize("size", [1, 70_000, 3 * MEGABYTE])
def test_all_of_it_arrives(size: int) -> None:
    briefing = Briefing()
    with receiver(briefing) as (_, said):
        briefing.give(b"x" * size)
        assert said() == repr((size, ord("x"))).encode()


def test_nobody_waits_for_a_receiver_that_is_stopped() -> None:
    briefing = Briefing()
    with receiver(briefing) as (pid, said):
        os.kill(pid, signal.SIGSTOP)
        before = time.monotonic()
        briefing.give(b"x" * 3 * MEGABYTE)
        assert time.monotonic() - before < 2
        os.kill(pid, signal.SIGCONT)
        assert said() == repr((3 * MEGABYTE, ord("x"))).encode()


def test_the_end_of_the_giver_is_no_briefing() -> None:
    briefing = Briefing()
    with receiver(briefing) as (_, said):
        briefing.close()
        assert said() == b"None"


def test_a_dead_receiver_is_no_error() -> None:
    briefing = Briefing()
    with receiver(briefing) as (pid, _):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        briefing.give(b"x")


words = st.binary(max_size=10)
plans = st.builds(
    Plan,
    name=st.text(max_size=10),
    owner=st.text(max_size=10),
    command=st.builds(Command, st.tuples(words, words), st.tuples(words)),
    caller_environment=st.dictionaries(words, words),
    backend=st.text(max_size=10),
    backend_shown=st.text(max_size=10),
    password=st.none() | st.text(max_size=10),
    require=st.sampled_from([None, "efficiency", "correctness"]),
    ttl=st.floats(3, 1e9),
    wait=st.none() | st.floats(0, 1e9),
    explain_conflict=st.booleans(),
    grace=st.floats(0, 1e9),
    max_run=st.none() | st.floats(0, 1e9),
    min_hold=st.floats(0, 1e9),
    window=st.builds(
        Window, st.none() | st.floats(0, 1e9), st.none() | st.text(max_size=10), st.floats(0, 1e9), st.booleans()
    ),
    fail_open=st.booleans(),
    kill_signal=st.sampled_from(signal.Signals),
    jitter=st.floats(0, 1e9),
    label=st.none() | st.just("\udcff"),
    descendants=st.none() | st.sampled_from(DESCENDANTS),
    verbosity=st.integers(-1, 5),
    keeping=st.builds(Keeping, st.none(), st.booleans(), st.integers(1, 9), st.floats(0, 1e9), st.none() | st.text()),
    strangers=st.frozensets(st.integers(1, 2**22)),
)


@given(plans)
def test_a_plan_arrives_as_it_was(plan: Plan) -> None:
    arrived = Plan.from_bytes(plan.to_bytes())
    assert arrived == plan
    assert isinstance(arrived.command, Command)
    assert isinstance(arrived.window, Window)
    assert isinstance(arrived.kill_signal, signal.Signals)
