"""Time itself, on each engine: a machine that slept, a wall clock that was set."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from clock_shim import clock_shim
from contending import Contender
from distlock.backends import open_backend
from distlock.backends.base import Environment
from distlock.clock import boottime
from margins import Margin
from processes import Lab, is_alive, wait_until

pytestmark = pytest.mark.faults

TTL = 3.0


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clock_shim(tmp_path_factory.mktemp("shim"))


def shifted(lab: Lab, shim: Path, clock: int) -> Path:
    """The file whose seconds every process of the run adds to this clock from now on."""
    shift = lab.folder / "shift"
    shift.write_text("0")
    lab.environment |= {"LD_PRELOAD": str(shim), "SHIFTED_CLOCK": str(clock), "SHIFT_FILE": str(shift)}
    return shift


def replace(path: Path, text: str) -> None:
    """In one step: nobody reads a file that is empty for a moment."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def expiry(lab: Lab) -> float | None:
    """When the lease ends as the engine says it; None if nobody holds the lock."""
    backend = open_backend(lab.backend, Environment(boottime, lambda: lab.folder))
    try:
        state = backend.inspect(lab.job, 5.0)
        return boottime() + (state.expires_in or 0.0) if state.held else None
    finally:
        backend.close()


def test_awake_after_a_suspend_the_child_dies_in_a_fifth_of_a_second(each_lab: Lab, shim: Path) -> None:
    """Nothing is renewed first: the server may have given the lock away long ago. (Giving it back is no harm.)"""
    command, stamps = each_lab.stamper("deaf")
    shift = shifted(each_lab, shim, time.CLOCK_BOOTTIME)
    run = each_lab.start("--ttl", "30", each_lab.job, "--", *command)
    child = stamps.writer()
    granted = boottime()
    wait_until(lambda: boottime() > granted + 1.5)  # a renewal would show in the expiry
    before = expiry(each_lab)
    assert before
    replace(shift, "60")
    awake = time.monotonic()
    wait_until(lambda: not is_alive(child), 5)
    assert time.monotonic() - awake < 0.2
    after = expiry(each_lab)
    assert after is None or after < before + 0.75
    _, stderr = run.communicate(timeout=5)
    assert run.returncode == 76
    assert b"lease lost" in stderr


def test_wall_clock_that_is_set_changes_nothing(each_lab: Lab, shim: Path, margin: Margin) -> None:
    """An hour forward, then two back."""
    command, stamps = each_lab.stamper()
    shift = shifted(each_lab, shim, time.CLOCK_REALTIME)
    run = each_lab.start("--ttl", str(TTL), each_lab.job, "--", *command)
    stamps.writer()
    replace(shift, "3600")
    with Contender(each_lab.backend, each_lab.job, each_lab.folder) as other:
        for seconds in ("3600", "-3600"):
            replace(shift, seconds)
            until = boottime() + TTL
            while boottime() < until:
                assert stamps.go_on()
                assert other.grant is None
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        margin(stamps.last(), other.wait(2))
