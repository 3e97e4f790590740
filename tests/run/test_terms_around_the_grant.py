"""A TERM at any moment around the grant: nothing survives, and the lock is free."""

from __future__ import annotations

import random
import signal
import subprocess
import time

import pytest

from distlock.backends import open_backend
from distlock.backends.base import Environment
from distlock.clock import boottime
from processes import Lab

pytestmark = pytest.mark.faults

TIMES = 100
TIMES_ON_OTHERS = 25
"""On engines besides the embedded one and Redis: it is about processes."""


@pytest.mark.timeout(240)
def test_terms_around_the_grant(each_lab: Lab) -> None:
    lab = each_lab
    mark = f"child-of-{lab.job}"
    command = [lab.job, "--", "sh", "-c", f"# {mark}\necho started; exec sleep 60"]
    before = time.monotonic()
    first = lab.start(*command)
    assert first.stdout
    assert first.stdout.readline() == b"started\n"
    usual = time.monotonic() - before
    first.terminate()
    first.wait(10)
    started = 0
    times = TIMES if lab.backend.startswith(("local:", "redis:")) else TIMES_ON_OTHERS
    for _ in range(times):
        run = lab.start(*command)
        time.sleep(usual * random.uniform(0.4, 1.3))  # the moment
        run.terminate()
        out, err = run.communicate(timeout=10)
        assert run.returncode == -signal.SIGTERM
        assert err == b""
        started += out == b"started\n"
    assert 0 < started < times, "the moments must lie on both sides of the grant"
    backend = open_backend(lab.backend, Environment(boottime, lambda: lab.folder))
    try:
        state = backend.inspect(lab.job, 5)
    finally:
        backend.close()
    assert not state.held
    assert not state.waiters
    assert subprocess.run(["pgrep", "-f", mark], check=False, stdout=subprocess.DEVNULL).returncode == 1
