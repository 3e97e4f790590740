"""Processors that are all taken. Not among the fault suites, which run side by side: it would starve those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from contending import Contender
from processes import Lab, is_alive, renewer_of, wait_until


@pytest.fixture
def busy() -> Iterator[None]:
    """64 loops that never rest; each ends by itself after half a minute whatever happens to us."""
    loop = "import time\nend = time.monotonic() + 30\nwhile time.monotonic() < end: pass"
    loops = [subprocess.Popen([sys.executable, "-I", "-S", "-c", loop]) for _ in range(64)]
    yield
    for process in loops:
        process.kill()
    for process in loops:
        process.wait()


@pytest.mark.parametrize("mode", ["deaf", "deaf daemon"])
def test_starved_supervisor_is_in_time(lab: Lab, mode: str, busy: None) -> None:
    """The renewer is dead, 64 processes want the two processors."""
    del busy
    command, stamps = lab.stamper(mode)
    run = lab.start("--ttl", "6", "job", "--", *command)
    child = wait_until(stamps.lines, 30)[-1][0]
    with Contender(lab.backend, "job", lab.folder) as other:
        os.kill(renewer_of(run.pid), signal.SIGKILL)
        granted = other.wait(20)
    assert stamps.last() < granted
    assert not is_alive(child)
    assert run.wait(20) == 76
