"""Processors that are all taken. Not among the fault suites, which run side by side: it would starve those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from contending import Contender
from margins import Margin
from processes import Lab, is_alive, renewer_of, wait_until
from proxy import Proxy
from servers import RedisServer


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


pytestmark = pytest.mark.alone

MODES = pytest.mark.parametrize("mode", ["deaf", "deaf daemon"])


@MODES
def test_starved_supervisor_is_in_time(lab: Lab, mode: str, busy: None, margin: Margin) -> None:
    """The renewer is dead, 64 processes want the two processors."""
    del busy
    command, stamps = lab.stamper(mode)
    run = lab.start("--ttl", "6", "job", "--", *command)
    child = wait_until(stamps.lines, 30)[-1][0]
    with Contender(lab.backend, "job", lab.folder) as other:
        os.kill(renewer_of(run.pid), signal.SIGKILL)
        granted = other.wait(20)
    margin(stamps.last(), granted)
    assert not is_alive(child)
    assert run.wait(20) == 76


@MODES
@pytest.mark.parametrize("stopped", [False, True], ids=["both act", "the renewer alone acts"])
def test_starved_and_cut_off(tmp_path: Path, mode: str, stopped: bool, busy: None, margin: Margin) -> None:
    """The network is silent. With the supervisor stopped only the renewer can end the tree."""
    del busy
    with RedisServer(tmp_path / "redis").running() as server, Proxy(server.port) as proxy, ExitStack() as stack:
        lab = Lab(tmp_path, f"redis://127.0.0.1:{proxy.port}")
        stack.callback(lab.close)
        command, stamps = lab.stamper(mode)
        run = lab.start("--ttl", "6", "job", "--", *command)
        child = wait_until(stamps.lines, 30)[-1][0]
        with Contender(server.url, "job", lab.folder) as other:
            if stopped:
                os.kill(run.pid, signal.SIGSTOP)
            proxy.black_hole()
            granted = other.wait(20)
        margin(stamps.last(), granted)
        assert not is_alive(child)
        os.kill(run.pid, signal.SIGCONT)
        assert run.wait(20) == 76
