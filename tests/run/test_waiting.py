"""Until the lock is had: order, time-outs, signals, and that nothing stays behind."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from contending import Contender
from distlock.backends import open_backend
from distlock.backends.base import Environment, LockState
from distlock.clock import boottime
from processes import Lab, is_alive, renewer_of, wait_until

HOLD = ["sh", "-c", "echo started; exec sleep 60"]


def state_of(lab: Lab, name: str = "job") -> LockState:
    backend = open_backend(lab.backend, Environment(boottime, lambda: lab.folder / "state"))
    try:
        return backend.inspect(name, 5)
    finally:
        backend.close()


def hold(lab: Lab, *options: str, name: str = "job") -> subprocess.Popen[bytes]:
    holder = lab.start(*options, name, "--", *HOLD)
    assert holder.stdout
    assert holder.stdout.readline() == b"started\n"
    return holder


def test_25_concurrent_runs_lose_no_update(lab: Lab) -> None:
    counter = lab.folder / "counter"
    counter.write_text("0")
    # Read, wait, write: without the lock nearly every update is lost.
    add = f"n=$(cat {counter}); sleep 0.01; echo $((n+1)) > {counter}"
    runs = [lab.start("count", "--", "sh", "-c", add) for _ in range(25)]
    for run in runs:
        assert run.wait(60) == 0
    assert counter.read_text() == "25\n"


def test_first_come_first_served(lab: Lab) -> None:
    holder = hold(lab)
    order = lab.folder / "order"
    runs = []
    for number in range(5):
        runs.append(lab.start("job", "--", "sh", "-c", f"echo {number} >> {order}"))
        wait_until(lambda: len(state_of(lab).waiters) == len(runs), what="the waiter in the queue")
    assert [waiter.pid for waiter in state_of(lab).waiters] == [run.pid for run in runs]
    holder.terminate()
    for run in runs:
        assert run.wait(20) == 0
    assert order.read_text().split() == ["0", "1", "2", "3", "4"]


@pytest.mark.alone  # it measures what others beside it would disturb
@pytest.mark.parametrize("limit", ["0.4", "800ms", "1.5s"])
def test_wait_is_honoured_to_a_tenth(lab: Lab, limit: str) -> None:
    hold(lab)
    seconds = {"0.4": 0.4, "800ms": 0.8, "1.5s": 1.5}[limit]
    # The start of the interpreter is not the wait: a run that does not wait shows what it costs.
    before = time.monotonic()
    assert lab.run("-n", "job", "--", "true").returncode == 75
    at_once = time.monotonic() - before
    before = time.monotonic()
    assert lab.run("-w", limit, "job", "--", "true").returncode == 75
    waited = time.monotonic() - before - at_once
    assert seconds - 0.1 < waited < seconds + 0.25
    assert not state_of(lab).waiters


def test_waiter_is_woken_by_the_release(lab: Lab) -> None:
    holder = hold(lab)
    out = lab.folder / "granted"
    waiter = lab.start("job", "--", "sh", "-c", f"read up rest < /proc/uptime; echo $up > {out}")
    wait_until(lambda: state_of(lab).waiters)
    ended = time.clock_gettime(time.CLOCK_BOOTTIME)
    holder.terminate()
    assert waiter.wait(10) == 0
    assert float(out.read_text()) - ended < 0.5


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "QUIT", "USR1"])
def test_signal_while_waiting_leaves_the_queue(lab: Lab, name: str) -> None:
    hold(lab)
    mark = lab.folder / "mark"
    waiter = lab.start("job", "--", "touch", str(mark))
    wait_until(lambda: state_of(lab).waiters)
    renewer = renewer_of(waiter.pid)
    number = signal.Signals[f"SIG{name}"]
    before = time.monotonic()
    waiter.send_signal(number)
    assert waiter.wait(5) == -number
    assert time.monotonic() - before < 1.0
    assert not state_of(lab).waiters
    assert not is_alive(renewer)
    assert not mark.exists()


@pytest.mark.parametrize("which", ["supervisor", "renewer", "both"])
def test_killed_waiter_costs_nobody_time(lab: Lab, which: str) -> None:
    holder = hold(lab)
    dead = lab.start("job", "--", "true")
    wait_until(lambda: state_of(lab).waiters)
    renewer = renewer_of(dead.pid)
    behind = lab.start("job", "--", "true")
    wait_until(lambda: len(state_of(lab).waiters) == 2)
    if which != "renewer":
        dead.kill()
    if which != "supervisor":
        subprocess.run(["kill", "-9", str(renewer)], check=True)
    dead.wait(5)
    wait_until(lambda: [waiter.pid for waiter in state_of(lab).waiters] == [behind.pid], 2)
    before = time.monotonic()
    holder.terminate()
    assert behind.wait(5) == 0
    assert time.monotonic() - before < 1.0


def test_renewer_that_dies_while_waiting_starts_nothing(lab: Lab) -> None:
    hold(lab)
    mark = lab.folder / "mark"
    waiter = lab.start("job", "--", "touch", str(mark))
    wait_until(lambda: state_of(lab).waiters)
    subprocess.run(["kill", "-9", str(renewer_of(waiter.pid))], check=True)
    _, stderr = waiter.communicate(timeout=5)
    assert waiter.returncode == 70
    assert b"nothing was started" in stderr
    assert not mark.exists()


def test_conflicts_leave_nothing(lab: Lab) -> None:
    hold(lab)
    before = sorted(path.name for path in (lab.folder / "locks").iterdir())
    for _ in range(20):
        assert lab.run("-n", "job", "--", "true").returncode == 75
    assert sorted(path.name for path in (lab.folder / "locks").iterdir()) == before
    assert len(list((lab.folder / "state" / "leases").iterdir())) == 1  # the holder's


def test_runs_leave_one_bounded_record(lab: Lab) -> None:
    assert lab.run("job", "--", "true").returncode == 0
    size = {path.name: path.stat().st_size for path in (lab.folder / "locks").iterdir()}
    for _ in range(20):
        assert lab.run("job", "--", "true").returncode == 0
    assert {path.name: path.stat().st_size for path in (lab.folder / "locks").iterdir()} == size
    assert not list((lab.folder / "state" / "leases").iterdir())


def test_jitter_delays_the_first_attempt(lab: Lab) -> None:
    """The delay is random, so only its bounds can be seen: several runs together take longer than none would."""
    before = time.monotonic()
    runs = [lab.start("--jitter", "1.5", f"job{n}", "--", "true") for n in range(6)]
    for run in runs:
        assert run.wait(20) == 0
    assert time.monotonic() - before > 0.3


def test_normal_end_frees_the_lock_at_once(lab: Lab) -> None:
    command, stamps = lab.stamper()
    run = lab.start("job", "--", *command)
    stamps.writer()
    with Contender(lab.backend, "job", lab.folder) as other:
        run.terminate()
        run.wait(5)
        assert other.wait(2) - stamps.last() < 0.1
