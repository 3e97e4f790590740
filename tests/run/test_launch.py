"""The processes that are forked before the options are read: they end with whoever forked them, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from distlock.supervise.tree import children
from processes import Lab, is_alive, wait_until

IDLE = """
import signal
from distlock.supervise.launch import Launch
launch = Launch()
print("ready", flush=True)
signal.alarm(60)
signal.pause()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSEGV])
def test_a_supervisor_that_dies_before_it_has_read_its_options_leaves_nothing(end: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"ready\n"
    idle = children(process.pid)
    assert len(idle) == 2
    process.send_signal(end)
    process.wait()
    wait_until(lambda: not any(map(is_alive, idle)))
    process.stdout.close()


@pytest.mark.parametrize(
    ("options", "code"), [(["--ttl", "no", "job", "--", "true"], 2), (["--help"], 0), (["job", "--", "no-such"], 127)]
)
def test_a_run_that_comes_to_nothing_leaves_nothing(lab: Lab, options: list[str], code: int) -> None:
    """Its pipes are at their end, and nobody is left in its process group."""
    process = lab.start(*options)
    process.communicate(timeout=10)
    assert process.returncode == code
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert not (lab.folder / "locks").exists()


CANNOT_FORK = """
import errno, os, sys
from distlock.cli.main import main
def fork():
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
os.fork = fork
sys.argv = ["distlock", "run", "job", "--", "true"]
main()
"""


def test_a_process_that_cannot_be_forked_is_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", CANNOT_FORK], capture_output=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (
        70,
        b"distlock: internal error: cannot start a process: Resource temporarily unavailable\n",
    )
