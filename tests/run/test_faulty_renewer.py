"""The renewer itself is at fault: an exception nobody foresaw, a crash, a request that honours no time-out, a library
that keeps the interpreter's lock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from contending import Contender
from margins import Margin
from processes import Lab, is_alive

pytestmark = pytest.mark.faults

TESTS = Path(__file__).parent.parent
TTL = 3.0


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
@pytest.mark.parametrize("how", ["raises", "exits", "crashes", "hangs", "hogs"])
def test_child_is_dead_before_the_grant(two_labs: Lab, how: str, mode: str, margin: Margin) -> None:
    lab = two_labs
    command, stamps = lab.stamper(mode)
    lab.environment["PYTHONPATH"] = str(TESTS)
    distlock = [sys.executable, str(TESTS / "faulty_engine.py"), "run", "-b", f"faulty:{how}:{lab.backend}"]
    run = lab.spawn([*distlock, "--ttl", str(TTL), lab.job, "--", *command])
    child = stamps.writer()
    with Contender(lab.backend, lab.job, lab.folder) as other:
        granted = other.wait(TTL + 4)
    margin(stamps.last(), granted)
    _, stderr = run.communicate(timeout=10)
    assert run.returncode == 76
    assert stderr.decode().count("\n") == 1
    assert stderr.decode().startswith(f"distlock: '{lab.job}': lease lost: ")
    assert not is_alive(child)
