"""What is promised on every engine, in the hardest shade of each: the last stamp of the old child comes before the
grant to anybody else. test_supervision.py has all shades, on two engines."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from contending import Contender
from distlock.clock import boottime
from margins import Margin
from processes import Lab, Stamps, is_alive, renewer_of, wait_until

pytestmark = pytest.mark.faults

TTL = 3.0


def stamping(lab: Lab, mode: str, *options: str) -> tuple[subprocess.Popen[bytes], int, Stamps]:
    command, stamps = lab.stamper(mode)
    run = lab.start("--ttl", str(TTL), *options, lab.job, "--", *command)
    stamps.writer()
    return run, renewer_of(run.pid), stamps


def contender(lab: Lab) -> Contender:
    return Contender(lab.backend, lab.job, lab.folder)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: "State:\tT" in Path(f"/proc/{pid}/status").read_text())


def test_kill_9_of_the_wrapper(each_lab: Lab, margin: Margin) -> None:
    run, _, stamps = stamping(each_lab, "deaf daemon", "--ttl", "30")
    with contender(each_lab) as other:
        killed = boottime()
        run.kill()
        granted = other.wait(5)
    margin(stamps.last(), granted)
    assert granted - killed < 2.0, "not after the TTL"
    assert not is_alive(stamps.writer())


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_dead_or_stopped_renewer(each_lab: Lab, how: signal.Signals, margin: Margin) -> None:
    run, renewer, stamps = stamping(each_lab, "deaf daemon")
    with contender(each_lab) as other:
        os.kill(renewer, how)
        granted = other.wait(2 * TTL + 3)
    margin(stamps.last(), granted)
    assert run.wait(5) == 76


def test_stopped_supervisor_keeps_the_lease(each_lab: Lab, margin: Margin) -> None:
    run, _, stamps = stamping(each_lab, "plain")
    with contender(each_lab) as other:
        stop(run.pid)
        until = boottime() + 2 * TTL
        while boottime() < until:
            assert stamps.go_on()
            assert other.grant is None
        os.kill(run.pid, signal.SIGCONT)
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        margin(stamps.last(), other.wait(3))


def test_freeze_of_everything_and_thaw(each_lab: Lab, margin: Margin) -> None:
    run, renewer, stamps = stamping(each_lab, "deaf")
    everything = [run.pid, renewer, stamps.writer()]
    with contender(each_lab) as other:
        for pid in everything:
            stop(pid)
        margin(stamps.last(), other.wait(2 * TTL + 3))
        thawed = boottime()
        for pid in reversed(everything):
            os.kill(pid, signal.SIGCONT)
        _, stderr = run.communicate(timeout=5)
    assert stamps.last() - thawed < 0.2
    assert run.returncode == 76
    assert b"lease lost" in stderr
