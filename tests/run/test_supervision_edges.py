"""Where two things go wrong at once, or something is in the way that is not of the run."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contending import Contender
from distlock.clock import boottime
from distlock.supervise import tree
from margins import Margin
from processes import DISTLOCK, Lab, is_alive, renewer_of, wait_until

pytestmark = pytest.mark.faults

STARTED = ["sh", "-c", "echo $$; exec sleep 60"]


def started(run: subprocess.Popen[bytes]) -> int:
    assert run.stdout
    return int(run.stdout.readline())


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: "State:\tT" in Path(f"/proc/{pid}/status").read_text())


def take_away(lab: Lab) -> None:
    (path,) = (lab.folder / "locks").glob("*.lock")
    shutil.rmtree(path)


def test_lease_lost_under_a_stopped_supervisor(lab: Lab) -> None:
    """The renewer ends the child; the supervisor, awake again, says why and not only that it was killed."""
    run = lab.start("--ttl", "3", "job", "--", *STARTED)
    child = started(run)
    stop(run.pid)
    take_away(lab)
    wait_until(lambda: not is_alive(child), 5)
    os.kill(run.pid, signal.SIGCONT)
    _, stderr = run.communicate(timeout=5)
    assert run.returncode == 76
    assert b"was removed or replaced" in stderr


def test_lease_had_and_lost_under_a_stopped_supervisor(lab: Lab) -> None:
    """The renewer starts the child without it; awake again, it hears of both at once and misses neither."""
    holder, waiter = waiting(lab, *STARTED)
    stop(waiter.pid)
    holder.terminate()
    child = started(waiter)
    take_away(lab)
    wait_until(lambda: not is_alive(child), 5)
    os.kill(waiter.pid, signal.SIGCONT)
    _, stderr = waiter.communicate(timeout=5)
    assert waiter.returncode == 76
    assert b"was removed or replaced" in stderr


def test_supervisor_killed_while_everything_is_stopped(lab: Lab, margin: Margin) -> None:
    command, stamps = lab.stamper("deaf")
    run = lab.start("--ttl", "3", "job", "--", *command)
    everything = [renewer_of(run.pid), stamps.writer()]
    with Contender(lab.backend, "job", lab.folder) as other:
        for pid in everything:
            stop(pid)
        run.kill()  # the kernel kills the stopped child for its parent's death
        wait_until(lambda: not is_alive(everything[1]), 2)
        granted = other.wait(5)
        margin(stamps.last(), granted)
        os.kill(everything[0], signal.SIGCONT)
        wait_until(lambda: not is_alive(everything[0]), 5)
        assert other.grant is not None
        assert other.grant.token is not None


def test_stopped_renewer_at_a_normal_end(lab: Lab) -> None:
    """The child's own code stands; one line says that the lock was not given back."""
    run = lab.start("--ttl", "30", "job", "--", "sh", "-c", "echo $$; read line; exit 5")
    started(run)
    renewer = renewer_of(run.pid)
    stop(renewer)
    run.wait(15)
    assert run.returncode == 5
    assert run.stderr
    assert b"the lock could not be released (no answer in time); it ends with its lease" in run.stderr.read()
    assert not is_alive(renewer)


def test_killed_renewer_and_a_child_that_ends_in_time(lab: Lab) -> None:
    run = lab.start("--ttl", "30", "job", "--", "sh", "-c", "echo $$; exec sleep 1")
    started(run)
    os.kill(renewer_of(run.pid), signal.SIGKILL)
    _, stderr = run.communicate(timeout=10)
    assert run.returncode == 0
    assert b"the renewer was dead" in stderr
    # On one host the crash is proven, so nobody has to wait for the lease to end.
    assert lab.run("-w", "5", "job", "--", "true").returncode == 0


def test_jobs_that_the_caller_started_are_not_of_the_run(lab: Lab) -> None:
    """``sleep & exec distlock …``: the background job becomes a child of distlock, and lives through a lost lease."""
    script = f"sleep 61 & echo $! > stranger; exec {DISTLOCK} run --ttl 3 job -- sh -c 'echo $$; exec sleep 60'"
    run = lab.spawn(["sh", "-c", script])
    child = started(run)
    stranger = int((lab.folder / "stranger").read_text())
    take_away(lab)
    assert run.wait(10) == 76
    assert not is_alive(child)
    assert is_alive(stranger)
    os.kill(stranger, signal.SIGKILL)


@pytest.mark.parametrize("which", ["supervisor", "renewer"])
def test_without_a_free_descriptor_nothing_passes_for_dead(lab: Lab, which: str, margin: Margin) -> None:
    """Neither process can open anything in /proc any more; the child is dead before the lock is had all the same."""
    command, stamps = lab.stamper("deaf")
    run = lab.start("--ttl", "3", "job", "--", *command)
    child = stamps.writer()
    renewer = renewer_of(run.pid)
    resource.prlimit(run.pid if which == "supervisor" else renewer, resource.RLIMIT_NOFILE, (0, 4096))
    with Contender(lab.backend, "job", lab.folder) as other:
        if which == "supervisor":
            os.kill(renewer, signal.SIGKILL)
        granted = other.wait(10)
    margin(stamps.last(), granted)
    assert not is_alive(child)
    assert run.wait(10) in (70, 76)


def test_grandchild_that_holds_the_output_does_not_hold_the_lock(lab: Lab) -> None:
    """The direct child is waited for, not the end of its pipes."""
    run = lab.start("job", "--", "sh", "-c", "setsid -f sleep 60; echo $$")
    started(run)
    before = boottime()
    assert lab.run("-w", "5", "job", "--", "true").returncode == 0
    assert boottime() - before < 2
    subprocess.run(["pkill", "-9", "-g", str(run.pid)], check=False)


def test_child_that_signals_its_own_group_is_not_signalled_again(lab: Lab) -> None:
    script = "import os, signal, sys, time\nn = []\nsignal.signal(signal.SIGUSR1, lambda *_: n.append(1))\n"
    script += "os.killpg(0, signal.SIGUSR1)\ntime.sleep(0.4)\nsys.exit(len(n))\n"
    assert lab.run("job", "--", sys.executable, "-c", script).returncode == 1


def test_no_library_of_a_backend_in_the_supervisor(lab: Lab) -> None:
    run = lab.start("job", "--", *STARTED)
    started(run)
    assert "sqlite" not in Path(f"/proc/{run.pid}/maps").read_text()
    assert "sqlite" in Path(f"/proc/{renewer_of(run.pid)}/maps").read_text()


def parked_of(supervisor: int) -> int:
    def look() -> int:
        pids = tree.children(supervisor)
        return next((p for p in pids if Path(f"/proc/{p}/comm").read_text() == "distlock-parked\n"), 0)

    return wait_until(look, what=f"a parked child below {supervisor}")


def waiting(lab: Lab, *command: str) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    """A holder, and a run that waits for it."""
    holder = lab.start("job", "--", *STARTED)
    started(holder)
    waiter = lab.start("--ttl", "3", "job", "--", *command)
    wait_until(lambda: lab.waiters() == 1)
    return holder, waiter


def test_child_that_was_stopped_before_its_exec_does_not_run_under_a_later_lease(lab: Lab) -> None:
    command, stamps = lab.stamper()
    holder, waiter = waiting(lab, *command)
    parked = parked_of(waiter.pid)
    stop(parked)
    holder.terminate()
    holder.wait(5)
    wait_until(lambda: lab.waiters() == 0)
    os.kill(renewer_of(waiter.pid), signal.SIGKILL)
    with Contender(lab.backend, "job", lab.folder) as other:
        other.wait(6)
        try:
            os.kill(parked, signal.SIGCONT)
        except ProcessLookupError:
            pass  # it was killed in time
        assert waiter.wait(5) == 76
    assert not stamps.lines()


def test_waiting_child_that_is_killed_is_no_death_of_the_command(lab: Lab) -> None:
    holder, waiter = waiting(lab, "touch", str(lab.folder / "mark"))
    os.kill(parked_of(waiter.pid), signal.SIGKILL)
    holder.terminate()
    _, stderr = waiter.communicate(timeout=5)
    assert waiter.returncode == 70
    assert stderr.decode() == "distlock: the process that waited to become COMMAND was killed; nothing was started\n"
    assert lab.run("-n", "job", "--", "true").returncode == 0


def test_job_that_ends_by_itself_after_its_lease_is_told(lab: Lab) -> None:
    """Both processes sleep past the deadline, the child does not; somebody else had the lock meanwhile."""
    run = lab.start("--ttl", "3", "job", "--", "sh", "-c", "echo $$; sleep 5")
    child = started(run)
    both = (renewer_of(run.pid), run.pid)
    for pid in both:
        stop(pid)
    with Contender(lab.backend, "job", lab.folder) as other:
        other.wait(6)
    wait_until(lambda: not is_alive(child), 5)
    for pid in both[::-1]:
        os.kill(pid, signal.SIGCONT)
    _, stderr = run.communicate(timeout=5)
    assert run.returncode == 76
    assert b"COMMAND ended by itself, perhaps too late" in stderr


@pytest.mark.parametrize("closed", [">&- 2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_words_to_a_closed_stderr_go_nowhere(lab: Lab, closed: str) -> None:
    """Where it was there could be a pipe of ours."""
    holder = lab.start("job", "--", *STARTED)
    started(holder)
    mark = lab.folder / "mark"
    waiter = lab.spawn(["sh", "-c", f"exec {DISTLOCK} run -v job -- touch {mark} {closed}"])
    wait_until(lambda: lab.waiters() == 1)
    holder.terminate()
    assert waiter.wait(5) == 0
    assert mark.exists()


def test_state_directory_is_the_users_alone(lab: Lab) -> None:
    assert lab.run("job", "--", "true").returncode == 0
    for folder in (lab.folder / "state", lab.folder / "state" / "leases", lab.folder / "locks"):
        assert folder.stat().st_mode & 0o777 == 0o700
