"""Ending what was started, by pid, and waiting for conditions. Every wait has an end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from distlock.supervise import tree
from distlock.supervise.linux import become_subreaper

LONGEST_WAIT = 60.0
"""Seconds for anything that is waited for: far above all that was ever seen, so that a hang becomes an error."""


def wait_until(condition: Callable[[], bool], what: str, seconds: float = LONGEST_WAIT) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.01)


def with_descendants(pid: int) -> list[int]:
    return [pid, *(process.pid for process in tree.descendants(pid, frozenset()))]


def kill(pid: int) -> None:
    """A child of this process that is not reaped yet, so that its pid is its own, and all below it."""
    below = tree.descendants(pid, frozenset())
    os.kill(pid, signal.SIGKILL)
    tree.send(below, signal.SIGKILL)


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Kills what is still below this process in the end: what a signal kept us from noting when it was just started,
    and what lost its parent."""
    become_subreaper()
    try:
        yield
    finally:
        me = os.getpid()
        until = time.monotonic() + LONGEST_WAIT
        while (left := tree.descendants(me, frozenset())) and time.monotonic() < until:
            tree.send(left, signal.SIGKILL)
            time.sleep(0.001)


def end(process: subprocess.Popen[bytes], grace: float = 0.0) -> None:
    """Asked to, if there is a grace, then made to."""
    if process.poll() is None and grace:
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            pass
    if process.poll() is None:
        kill(process.pid)
        process.wait()
