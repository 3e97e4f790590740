"""Python programs that hold a lock themselves, as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from typing import Any

from distlock.backends import open_backend
from distlock.backends.base import Environment, Grant
from distlock.clock import boottime
from processes import DISTLOCK, Lab, is_alive, renewer_of, wait_until

PRELUDE = """
import os, signal, subprocess, sys, threading, time
import distlock
JOB = sys.argv[1]
def say(*words):
    print(*words, flush=True)
def stay():
    signal.alarm(60)  # whatever becomes of the test
    signal.pause()
"""


class Host:
    """A program with the given body, under the lab's environment. It talks line by line."""

    def __init__(
        self, lab: Lab, body: str, *flags: str, python: str = sys.executable, before: str = "", **environment: str
    ) -> None:
        self.lab = lab
        code = before + PRELUDE + textwrap.dedent(body)
        self.process = lab.spawn([python, *flags, "-c", code, lab.job], environment=environment)
        self.pid = self.process.pid

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().decode().rstrip("\n")

    def expect(self, line: str) -> None:
        """The next line, and the program's errors if it is another one."""
        said = self.line()
        if said != line:
            self.process.kill()
            _, stderr = self.process.communicate()
            raise AssertionError(f"{said!r} instead of {line!r}\n{stderr.decode()}")

    def renewer(self) -> int:
        return renewer_of(self.pid)

    def end(self, code: int = 0, seconds: float = 15) -> str:
        """What it still said. Its exit code is ``code``, and it leaves no traceback."""
        stdout, stderr = self.process.communicate(timeout=seconds)
        assert (self.process.returncode, stderr.decode()) == (code, "")
        return stdout.decode()


def had_within(lab: Lab, seconds: float) -> float:
    """Wait for the lock with the command; the clock when it was had."""
    done = lab.run("-w", str(seconds), lab.job, "--", sys.executable, "-c", "import time; print(time.clock_gettime(7))")
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def inspected(lab: Lab) -> dict[str, Any]:
    shown = subprocess.run(
        [DISTLOCK, "inspect", "--json", lab.job], env=lab.environment, capture_output=True, check=True
    ).stdout
    found: dict[str, Any] = json.loads(shown)
    return found


def is_held(lab: Lab) -> bool:
    return bool(inspected(lab)["state"] != "free")


def take_away(lab: Lab, owner: str, token: int | None) -> None:
    """Behind the holder's back, on any engine: somebody gives its lease back."""
    backend = open_backend(lab.backend, Environment(boottime, lambda: lab.folder))
    try:
        backend.release(Grant(lab.job, owner, token, 3.0, boottime()), 5)
    finally:
        backend.close()


def wait_until_gone(pid: int, seconds: float = 5) -> None:
    wait_until(lambda: not is_alive(pid), seconds, f"the end of {pid}")
