"""No child outlives its lease: the last stamp of the old holder's child comes before anybody else's grant.

The lease is lost here by what can happen on one host, whatever the engine: processes are killed and stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contending import Contender
from distlock.clock import boottime
from distlock.deadline import hard_deadline
from margins import Margin
from processes import Lab, Stamps, is_alive, renewer_of, wait_until

pytestmark = pytest.mark.faults

TTL = 3.0
MODES = ["plain", "deaf", "deaf daemon", "deaf daemon bare", "deaf storm"]


@pytest.fixture
def lab(two_labs: Lab) -> Lab:
    return two_labs


def stamping(lab: Lab, mode: str = "plain", *options: str) -> tuple[subprocess.Popen[bytes], int, Stamps]:
    """A running job, its renewer, its stamps."""
    command, stamps = lab.stamper(mode)
    run = lab.start("--ttl", str(TTL), *options, lab.job, "--", *command)
    stamps.writer()
    return run, renewer_of(run.pid), stamps


def known_to_renewer(stamps: Stamps) -> None:
    """A daemon with an empty environment is found by the renewer's snapshot, taken twice a second: the one
    documented gap is a process younger than that."""
    wait_until(lambda: boottime() - stamps.lines()[0][1] > 0.7)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: "State:\tT" in Path(f"/proc/{pid}/status").read_text())


def contender(lab: Lab) -> Contender:
    return Contender(lab.backend, lab.job, lab.folder)


@pytest.mark.parametrize("mode", MODES)
def test_kill_9_of_the_wrapper(lab: Lab, mode: str, margin: Margin) -> None:
    """The tree is dead at once, and the lock is had within a second and not after the TTL."""
    run, _, stamps = stamping(lab, mode, "--ttl", "30")
    if "bare" in mode:
        known_to_renewer(stamps)
    with contender(lab) as other:
        killed = boottime()
        run.kill()
        granted = other.wait(5)
    margin(stamps.last(), granted)
    assert granted - killed < 1.0
    assert not is_alive(stamps.writer())


def test_kill_9_of_the_wrapper_and_the_next_run(lab: Lab) -> None:
    run, _, stamps = stamping(lab, "plain", "--ttl", "300")
    run.kill()
    before = time.monotonic()
    assert lab.run(lab.job, "--", "true").returncode == 0
    assert time.monotonic() - before < 1.0
    assert not is_alive(stamps.writer())


def test_stopped_supervisor_keeps_the_lease(lab: Lab) -> None:
    """The renewer renews on for three TTLs; afterwards all goes its normal way."""
    run, _, stamps = stamping(lab)
    with contender(lab) as other:
        stop(run.pid)
        until = boottime() + 3 * TTL
        while boottime() < until:
            assert stamps.go_on()
            assert other.grant is None
        os.kill(run.pid, signal.SIGCONT)
        assert stamps.go_on()
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        other.wait(2)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("mode", ["plain", "deaf", "deaf daemon bare"])
def test_dead_or_stopped_renewer(lab: Lab, how: signal.Signals, mode: str, margin: Margin) -> None:
    """The supervisor ends the tree by its own clock."""
    run, renewer, stamps = stamping(lab, mode)
    with contender(lab) as other:
        os.kill(renewer, how)
        # Between two renewals the lease is at most TTL old, so this is the latest that the end may come.
        latest = hard_deadline(boottime(), TTL) + 1.0
        _, stderr = run.communicate(timeout=TTL + 5)
        assert boottime() < latest
        granted = other.wait(TTL + 2)
    assert run.returncode == 76
    margin(stamps.last(), granted)
    assert stderr.decode().startswith(f"distlock: '{lab.job}': lease lost: ")
    assert stderr.decode().count("\n") == 1


def test_both_killed(lab: Lab, margin: Margin) -> None:
    """The parent's death signal is the last string."""
    run, renewer, stamps = stamping(lab)
    with contender(lab) as other:
        os.kill(renewer, signal.SIGSTOP)
        os.kill(renewer, signal.SIGKILL)
        run.kill()
        granted = other.wait(TTL + 2)
    margin(stamps.last(), granted)


def test_freeze_of_everything_and_thaw(lab: Lab, margin: Margin) -> None:
    """Everything sleeps past the TTL; awake, nothing of the child goes on for longer than a fifth of a second,
    and nothing is renewed first."""
    run, renewer, stamps = stamping(lab, "deaf")
    child = stamps.writer()
    everything = [run.pid, renewer, child]
    with contender(lab) as other:
        for pid in everything:
            stop(pid)
        granted = other.wait(TTL + 2)
        margin(stamps.last(), granted)
        thawed = boottime()
        for pid in reversed(everything):
            os.kill(pid, signal.SIGCONT)
        _, stderr = run.communicate(timeout=5)
    assert stamps.last() - thawed < 0.2
    assert run.returncode == 76
    assert b"lease lost" in stderr


def test_job_of_many_ttls_keeps_its_lock(lab: Lab, margin: Margin) -> None:
    run, _, stamps = stamping(lab)
    with contender(lab) as other:
        until = boottime() + 4 * TTL
        while boottime() < until:
            assert stamps.go_on()
            assert other.grant is None
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        margin(stamps.last(), other.wait(2))


def test_full_stderr_delays_no_kill(lab: Lab, margin: Margin) -> None:
    """Nothing is written before the child is dead."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 65536)
    except BlockingIOError:
        pass
    os.set_blocking(writing, True)
    command, stamps = lab.stamper("deaf")
    run = lab.start("-vv", "--ttl", str(TTL), lab.job, "--", *command, stderr=writing)
    child = stamps.writer()
    with contender(lab) as other:
        os.kill(renewer_of(run.pid), signal.SIGKILL)
        granted = other.wait(TTL + 3)
    margin(stamps.last(), granted)
    assert not is_alive(child)
    os.close(writing)
    os.set_blocking(reading, False)
    while run.poll() is None:
        try:
            os.read(reading, 65536)
        except BlockingIOError:
            time.sleep(0.005)
    os.close(reading)
    assert run.returncode == 76


COUNTER = """
import os, signal, sys, time

number, expected = int(sys.argv[1]), int(sys.argv[2])
got = []
def count(*_):
    got.append(1)
    os.write(1, b"got %d\\n" % len(got))  # print() is not reentrant
signal.signal(number, count)
os.write(1, b"ready\\n")
while len(got) < expected:
    time.sleep(0.01)
time.sleep(0.4)  # for one too many
sys.exit(len(got))
"""


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2"])
@pytest.mark.parametrize("times", [1, 2])
def test_signal_reaches_the_child_once_each_time(lab: Lab, name: str, times: int) -> None:
    """Without a terminal."""
    number = signal.Signals[f"SIG{name}"]
    run = lab.start(lab.job, "--", sys.executable, "-c", COUNTER, str(int(number)), str(times))
    assert run.stdout
    assert run.stdout.readline() == b"ready\n"
    for count in range(1, times + 1):
        run.send_signal(number)
        assert run.stdout.readline() == b"got %d\n" % count
    assert run.wait(10) == times
