"""Time itself: a machine that slept, a wall clock that was set, processors that are all taken."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from contending import Contender
from distlock.clock import boottime
from processes import Lab, is_alive, wait_until

pytestmark = pytest.mark.faults

TTL = 3.0


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("shim") / "clock_shim.so"
    source = Path(__file__).parent.parent / "clock_shim.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(built), str(source), "-ldl"], check=True)
    return built


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


@pytest.mark.parametrize("mode", ["plain", "deaf"])
def test_awake_after_a_suspend_the_child_dies_in_a_fifth_of_a_second(lab: Lab, shim: Path, mode: str) -> None:
    """Nothing is renewed first: the server may have given the lock away long ago. (Giving it back is no harm.)"""
    command, stamps = lab.stamper(mode)
    shift = shifted(lab, shim, time.CLOCK_BOOTTIME)
    run = lab.start("--ttl", "30", "job", "--", *command)
    child = stamps.writer()
    before = _renewed(lab)
    replace(shift, "60")
    awake = time.monotonic()
    wait_until(lambda: not is_alive(child), 5)
    assert time.monotonic() - awake < 0.2
    _, stderr = run.communicate(timeout=5)
    assert run.returncode == 76
    assert b"lease lost" in stderr
    assert _renewed(lab) in (before, None)


def _renewed(lab: Lab) -> float | None:
    """When the lease was last granted or renewed; None if the lock is free."""
    (path,) = (lab.folder / "locks").glob("*.lock/lock.db")
    database = sqlite3.connect(path)
    owner, changed = database.execute("SELECT owner, changed FROM lock").fetchone()
    database.close()
    return float(changed) if owner else None


@pytest.mark.parametrize("seconds", ["3600", "-3600"])
def test_wall_clock_that_is_set_changes_nothing(lab: Lab, shim: Path, seconds: str) -> None:
    command, stamps = lab.stamper()
    shift = shifted(lab, shim, time.CLOCK_REALTIME)
    run = lab.start("--ttl", str(TTL), "job", "--", *command)
    stamps.writer()
    replace(shift, seconds)
    with Contender(lab.backend, "job", lab.folder) as other:
        until = boottime() + 2 * TTL
        while boottime() < until:
            assert stamps.go_on()
            assert other.grant is None
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        other.wait(2)
