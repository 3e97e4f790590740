"""Programs that hold a lock: how they end, fork, are interrupted, and what kinds of programs there are."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from contending import Contender
from distlock.clock import boottime
from distlock.supervise import tree
from hosting import Host, had_within, inspected, is_held, wait_until_gone
from processes import Lab, is_alive, wait_until

HOLD = """
with distlock.hold(JOB) as lease:
    say("held")
    stay()
"""


@pytest.mark.parametrize("children", ["none", "forked", "executed"])
def test_killed(two_labs: Lab, children: str) -> None:
    """The lock is free at once: nothing of the program works any more. Its children live on, without the lock; a
    forked one has its descriptors."""
    start = {
        "none": "child = 0",
        "forked": "child = os.fork()\n    if not child: stay()",
        "executed": "child = subprocess.Popen(['sleep', '60'], close_fds=False).pid",
    }[children]
    host = Host(two_labs, f"with distlock.hold(JOB, ttl=30) as lease:\n    {start}\n    say(child)\n    stay()")
    child = int(host.line())
    renewer = host.renewer()
    try:
        with Contender(two_labs.backend, two_labs.job, two_labs.folder) as other:
            killed = boottime()
            os.kill(host.pid, signal.SIGKILL)
            assert other.wait(10) - killed < 3
        wait_until_gone(renewer)
        assert not child or is_alive(child)
    finally:
        if child:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("end", ["sys.exit(3)", "os._exit(3)", "os.abort()"])
def test_ends_inside(two_labs: Lab, end: str) -> None:
    host = Host(two_labs, f"with distlock.hold(JOB) as lease:\n    say('held')\n    {end}")
    host.expect("held")
    had_within(two_labs, 5)
    assert host.process.wait(5) == (-signal.SIGABRT if "abort" in end else 3)


@pytest.mark.parametrize("referred_to", [True, False])
def test_ends_without_leaving(lab: Lab, referred_to: bool) -> None:
    """Silently: whoever does not leave the context gives the lock back by ending."""
    host = Host(lab, f"{'held = ' if referred_to else ''}distlock.hold(JOB).__enter__()\nsay('held')")
    host.expect("held")
    host.end()
    had_within(lab, 5)


def test_interrupted_while_waiting(two_labs: Lab) -> None:
    """It has left the queue, and in less than a second."""
    holder = Host(two_labs, HOLD)
    holder.expect("held")
    waiter = Host(
        two_labs,
        """
        say("waits")
        try:
            with distlock.hold(JOB):
                say("the body ran without the lock")
        except KeyboardInterrupt:
            say("interrupted")
        stay()
        """,
    )
    waiter.expect("waits")
    wait_until(lambda: inspected(two_labs)["waiters"])
    renewer = waiter.renewer()
    sent = boottime()
    os.kill(waiter.pid, signal.SIGINT)
    waiter.expect("interrupted")
    assert boottime() - sent < 2
    assert not is_alive(renewer)
    assert inspected(two_labs)["waiters"] == []
    assert tree.children(waiter.pid) == []


def test_killed_while_waiting(two_labs: Lab) -> None:
    holder = Host(two_labs, HOLD)
    holder.expect("held")
    waiter = Host(two_labs, "say('waits')\nwith distlock.hold(JOB): say('the body ran without the lock')")
    waiter.expect("waits")
    wait_until(lambda: inspected(two_labs)["waiters"])
    renewer = waiter.renewer()
    waiter.process.kill()
    wait_until_gone(renewer)
    assert inspected(two_labs)["waiters"] == []


def test_renewer_killed_while_waiting(lab: Lab) -> None:
    """No lock, no body."""
    holder = Host(lab, HOLD)
    holder.expect("held")
    waiter = Host(
        lab,
        """
        try:
            with distlock.hold(JOB):
                say("the body ran without the lock")
        except distlock.InternalError as error:
            say(error)
        """,
    )
    wait_until(lambda: inspected(lab)["waiters"])
    os.kill(waiter.renewer(), signal.SIGKILL)
    waiter.expect("the renewer ended before it got the lock")
    waiter.end()


def test_interrupted_inside(lab: Lab) -> None:
    host = Host(
        lab,
        """
        try:
            with distlock.hold(JOB):
                say("held")
                stay()
        except KeyboardInterrupt:
            say("interrupted")
        stay()
        """,
    )
    host.expect("held")
    os.kill(host.pid, signal.SIGINT)
    host.expect("interrupted")
    assert not is_held(lab)


def test_signals_that_end_a_job_do_not_end_the_renewer(lab: Lab) -> None:
    """Neither those that a terminal sends to the group, nor a TERM to each process of a unit."""
    host = Host(
        lab,
        """
        import pathlib
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, lambda number, frame: None)
        with distlock.hold(JOB, ttl=3) as lease:
            say("held")
            sys.stdin.close()
            while not os.path.exists("leave"):
                time.sleep(0.01)
            say(lease.lost.is_set(), lease.remaining() > 0)
        """,
    )
    host.expect("held")
    renewer = host.renewer()
    assert os.getsid(renewer) == renewer
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
        if number != signal.SIGTSTP:
            os.killpg(host.pid, number)
        os.kill(renewer, number)
    assert is_held(lab)
    (lab.folder / "leave").touch()
    host.expect("False True")
    host.end()
    assert not is_held(lab)


FORKS = """
import multiprocessing
def look(lease):
    try:
        lease.checkpoint(need=0)
        said = "passed"
    except distlock.LeaseExpiring as error:
        said = str(error)
    say(lease.lost.is_set(), lease.lost.wait(0), lease.remaining() > 0, said)
"""


@pytest.mark.parametrize(
    "fork",
    [
        "pid = os.fork()\n    if pid == 0: look(lease); os._exit(0)\n    os.waitpid(pid, 0)",
        "p = multiprocessing.get_context('fork').Process(target=look, args=(lease,)); p.start(); p.join()",
    ],
)
def test_forked_child_does_not_hold_it(lab: Lab, fork: str) -> None:
    host = Host(lab, f"{FORKS}\nwith distlock.hold(JOB) as lease:\n    {fork}\n    look(lease)")
    host.expect(f"True True False '{lab.job}': lease lost: this process was forked off the one that holds it")
    host.expect("False False True passed")
    host.end()


def test_forked_child_does_not_give_it_back(two_labs: Lab) -> None:
    """By leaving the context, by dropping its references, by ending."""
    host = Host(
        two_labs,
        """
        holding = distlock.hold(JOB)
        lease = holding.__enter__()
        child = os.fork()
        if child == 0:
            holding.__exit__(None, None, None)
            del holding, lease
            sys.exit()
        os.waitpid(child, 0)
        lease.checkpoint()
        say("the child has ended")
        while not os.path.exists("leave"):
            time.sleep(0.01)
        lease.checkpoint()
        holding.__exit__(None, None, None)
        say("left")
        """,
    )
    host.expect("the child has ended")
    assert is_held(two_labs)
    assert two_labs.run("-n", two_labs.job, "--", "true").returncode == 75
    (two_labs.folder / "leave").touch()
    host.expect("left")
    assert not is_held(two_labs)
    host.end()


def test_fork_between_hold_and_the_body(lab: Lab) -> None:
    """As in a server that makes its objects before it forks: each has a holding of its own."""
    host = Host(
        lab,
        """
        holding = distlock.hold(JOB)
        child = os.fork()
        with holding as lease:
            lease.checkpoint()
            say(lease.owner)
        if child:
            os.waitpid(child, 0)
        """,
    )
    assert len({host.line(), host.line()} - {""}) == 2
    host.end()


PECULIAR = {
    "dies of SIGPIPE": "signal.signal(signal.SIGPIPE, signal.SIG_DFL)",
    "ignores SIGCHLD": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "reaps everything": """
def reap(*_):
    try:
        while os.waitpid(-1, os.WNOHANG)[0]: pass
    except ChildProcessError: pass
signal.signal(signal.SIGCHLD, reap)""",
    "has no standard input and no error output": "os.closerange(2, 1000); os.close(0)",
    "has many inheritable ones": "for _ in range(40): os.set_inheritable(os.dup(1), True)",
    "blocks signals": "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))",
    "runs a thread that keeps the interpreter": """
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()""",
    "has a broken environment": "os.environ['PYTHONINSPECT'] = '1'; os.environ['_DISTLOCK_PATH'] = 'x'",
}


@pytest.mark.parametrize("peculiar", PECULIAR)
def test_peculiar_programs(lab: Lab, peculiar: str) -> None:
    """Held, renewed, given back; then again, with a renewer that dies."""
    host = Host(
        lab,
        f"""{PECULIAR[peculiar]}
with distlock.hold(JOB, ttl=3) as lease:
    say("held")
    lease.lost.wait(1.5)
    lease.checkpoint(need=0)
say("left")
with distlock.hold(JOB, ttl=3) as lease:
    say("again")
    say(lease.lost.wait(10))
say("left")
os._exit(0)
""",
    )
    for line in ("held", "left", "again"):
        host.expect(line)
    os.kill(host.renewer(), signal.SIGKILL)
    host.expect("True")
    host.expect("left")
    assert host.process.wait(10) == 0


def test_renewer_keeps_none_of_the_hosts_descriptors(lab: Lab) -> None:
    """Somebody waits for the end of file of one."""
    host = Host(
        lab,
        """
        import fcntl
        reading, low = os.pipe()
        writing = fcntl.fcntl(low, fcntl.F_DUPFD, 30)  # inheritable, and none of the numbers that the renewer gets
        os.close(low)
        with distlock.hold(JOB):
            os.close(writing)
            say(os.read(reading, 1))
        """,
    )
    host.expect("b''")
    host.end()


@pytest.mark.parametrize("then", ["pass", "pipes = [os.pipe() for _ in range(50)]"])
def test_descriptors_closed_by_the_program(lab: Lab, then: str) -> None:
    """What it cannot ask about any more counts as lost, also when others have the numbers. The renewer sees the end of
    file, and gives the lock back."""
    host = Host(
        lab,
        f"""
        holding = distlock.hold(JOB)
        lease = holding.__enter__()
        os.closerange(3, 1000)
        {then}
        say(lease.lost.wait(10), lease.remaining())
        stay()
        """,
    )
    host.expect("True 0.0")
    had_within(lab, 10)


def test_neighbours_of_the_program_are_no_modules(lab: Lab) -> None:
    """What lies in its folder under the name of a library's is not what the renewer loads."""
    for name in ("sqlite3", "redis", "kazoo"):
        (lab.folder / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    script = lab.folder / "program.py"
    script.write_text("import distlock\nwith distlock.hold('job', ttl=30.0) as lease: print(lease.name)\n")
    done = subprocess.run(
        [sys.executable, str(script)], env=lab.environment, cwd=lab.folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "job\n", "")


@pytest.mark.parametrize("flags", [["-I"], ["-E"], ["-s"], ["-OO"], ["-W", "error"], ["-X", "dev"]])
def test_flags(lab: Lab, flags: list[str]) -> None:
    host = Host(lab, "with distlock.hold(JOB): say('held')", *flags)
    host.expect("held")
    host.end()


def base_python() -> str:
    """The interpreter below the virtual environment: it knows no distlock."""
    python = str(Path(sysconfig.get_config_var("BINDIR")) / f"python{sys.version_info.major}.{sys.version_info.minor}")
    found = subprocess.run([python, "-I", "-c", "import distlock"], capture_output=True, check=False)
    assert found.returncode == 1, "distlock is installed for the base interpreter, too"
    return python


def test_path_that_the_program_has_made_itself(lab: Lab) -> None:
    """A program that brings its libraries along, and says so to nobody but sys.path."""
    host = Host(
        lab,
        "with distlock.hold(JOB): say('held')",
        python=base_python(),
        before=f"import sys; sys.path += {sys.path!r}\n",
    )
    host.expect("held")
    host.end()


def test_embedded_interpreter(lab: Lab) -> None:
    """sys.executable is a server's that has Python inside."""
    host = Host(lab, f"sys.executable = {shutil.which('true')!r}\nwith distlock.hold(JOB): say('held')")
    host.expect("held")
    host.end()


def test_no_interpreter(lab: Lab) -> None:
    host = Host(
        lab,
        """
        sys.executable = ""
        sys.exec_prefix = sys.base_exec_prefix = "/nowhere"
        try:
            with distlock.hold(JOB): say("the body ran without the lock")
        except distlock.ConfigurationError as error:
            say(error)
        """,
    )
    host.expect("no Python interpreter for the renewer: /nowhere/bin/python3 does not exist")
    host.end()


def test_renewer_that_cannot_start(lab: Lab) -> None:
    """One error, and what Python has to say about it on stderr."""
    host = Host(
        lab,
        """
        os.environ["PYTHONHOME"] = "/nowhere"
        try:
            with distlock.hold(JOB): say("the body ran without the lock")
        except distlock.InternalError as error:
            say(error)
        """,
    )
    host.expect("the renewer ended before it got the lock")
    host.process.wait(10)


def test_lock_that_cannot_be_given_back(lab: Lab) -> None:
    """The renewer does not answer: a line to the log of the program, not an error."""
    host = Host(
        lab,
        """
        import logging
        logging.basicConfig(format="%(name)s %(levelname)s %(message)s", stream=sys.stdout)
        with distlock.hold(JOB, ttl=30):
            say("held")
            while not os.path.exists("leave"):
                time.sleep(0.01)
        """,
    )
    host.expect("held")
    renewer = host.renewer()
    os.kill(renewer, signal.SIGSTOP)
    (lab.folder / "leave").touch()
    told = host.end()
    assert (
        told
        == f"distlock WARNING '{lab.job}': the lock could not be released (no answer in time); it ends with its lease\n"
    )
    assert not is_alive(renewer)
