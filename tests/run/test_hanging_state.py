"""A state directory that hangs, as one on a server that is gone: it keeps neither renewals nor a release."""

from __future__ import annotations

import os
import signal

import pytest

from distlock.clock import boottime
from processes import Lab, wait_until

pytestmark = pytest.mark.faults

TTL = 3.0


def test_a_lease_file_that_cannot_be_written_for_now_keeps_no_renewal(lab: Lab) -> None:
    """The file beside it, to which the next one is written, is a FIFO that nobody reads: opening it blocks."""
    command, stamps = lab.stamper()
    run = lab.start("--ttl", str(TTL), "job", "--", *command)
    stamps.writer()
    (file,) = wait_until(lambda: list((lab.folder / "state/leases").glob("*.json")))
    first = file.stat().st_ino
    wait_until(lambda: file.stat().st_ino != first, TTL)
    os.mkfifo(file.with_suffix(".new"))
    until = boottime() + 2 * TTL
    while boottime() < until:
        assert stamps.go_on()
    assert run.poll() is None
    asked = boottime()
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    assert boottime() - asked < 2.0
    assert lab.run("-n", "job", "--", "true").returncode == 0, "released, not run out"
