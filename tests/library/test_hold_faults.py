"""A program that does side effects behind ``checkpoint``: none comes after somebody else was granted the lock."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from contending import Contender
from distlock.clock import boottime
from hosting import Host, had_within, inspected, is_held, take_away
from margins import Margin
from processes import Lab, Stamps, is_alive, wait_until
from proxy import Proxy
from servers import RedisServer

pytestmark = pytest.mark.faults

TESTS = Path(__file__).parent.parent
TTL = 3.0

WORK = f"""
stamps = os.open("stamps", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def stamp(lease):
    lease.checkpoint(need=0.2)
    os.write(stamps, b"%d %d\\n" % (os.getpid(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
with distlock.hold(JOB, ttl={TTL}) as lease:
    say(lease.owner, lease.token)
    try:
        while True:
            stamp(lease)
            time.sleep(0.005)
    except distlock.LeaseExpiring as error:
        say(f"stopped: {{error}}")
        lease.lost.wait()
        say(f"lost: {{lease.lost.reason}}")
"""


def working(lab: Lab, **environment: str) -> tuple[Host, Stamps, list[str]]:
    """The host, what it writes, and its owner id and token."""
    host = Host(lab, WORK, **environment)
    words = host.line().split()
    stamps = Stamps(lab.folder / "stamps")
    wait_until(stamps.lines)
    return host, stamps, words


def lost(host: Host) -> str:
    assert host.line().startswith("stopped: ")
    line = host.line()
    assert line.startswith("lost: ")
    assert host.process.wait(10) == 0
    return line


def is_left_alone(lab: Lab, granted: float) -> bool:
    """Whether the contender, who does not renew, has the lock as long as it may."""
    return is_held(lab) or boottime() > granted + 3


def test_held_over_many_terms(two_labs: Lab) -> None:
    """Renewed for as long as the body takes; a contender never gets in."""
    host, stamps, _ = working(two_labs)
    with Contender(two_labs.backend, two_labs.job, two_labs.folder) as other:
        until = boottime() + 2.5 * TTL
        wait_until(lambda: boottime() > until, 4 * TTL)
        assert other.grant is None
    assert stamps.go_on()
    host.process.kill()


def test_taken_away(two_labs: Lab) -> None:
    """Told within a third of the TTL, and the new holder is left alone."""
    host, stamps, (owner, token) = working(two_labs)
    taken = boottime()
    take_away(two_labs, owner, int(token))
    with Contender(two_labs.backend, two_labs.job, two_labs.folder) as other:
        granted = other.wait(5)
        lost(host)
        assert stamps.last() - taken < TTL / 3 + 1
        assert is_left_alone(two_labs, granted)


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL])
def test_renewer_is_gone(two_labs: Lab, how: signal.Signals, margin: Margin) -> None:
    """Killed: told at once. Frozen: by the host's clock, in time."""
    host, stamps, _ = working(two_labs)
    renewer = host.renewer()
    with Contender(two_labs.backend, two_labs.job, two_labs.folder) as other:
        gone = boottime()
        os.kill(renewer, how)
        reason = lost(host)
        granted = other.wait(TTL + 3)
        margin(stamps.last(), granted)
    if how == signal.SIGKILL:
        assert reason == "lost: the renewer is dead"
        assert stamps.last() - gone < 0.5
    else:
        assert reason == "lost: it could not be renewed in time"
    assert not is_alive(renewer), "a frozen one is ended with the context"


def test_lock_of_a_program_whose_renewer_was_killed(two_labs: Lab) -> None:
    """It goes on, perhaps with a side effect that it had begun: the lock is not free before its lease is over."""
    host = Host(two_labs, f"with distlock.hold(JOB, ttl={TTL}) as lease:\n    say('held')\n    stay()")
    host.expect("held")
    with Contender(two_labs.backend, two_labs.job, two_labs.folder) as other:
        killed = boottime()
        os.kill(host.renewer(), signal.SIGKILL)
        assert other.wait(TTL + 3) - killed > TTL / 2


def test_everything_is_frozen(two_labs: Lab, margin: Margin) -> None:
    """Past the lease, then thawed, the host first: its clock tells it, and there is no further side effect."""
    host, stamps, _ = working(two_labs)
    renewer = host.renewer()
    before = len(stamps.lines())
    wait_until(lambda: len(stamps.lines()) > before)
    with Contender(two_labs.backend, two_labs.job, two_labs.folder) as other:
        os.kill(renewer, signal.SIGSTOP)
        os.kill(host.pid, signal.SIGSTOP)
        granted = other.wait(TTL + 3)
        # One that was past its checkpoint when it was frozen comes late: for that there is the token.
        frozen = len(stamps.lines())
        os.kill(host.pid, signal.SIGCONT)
        told = host.line()
        os.kill(renewer, signal.SIGCONT)
        assert "lease lost: it could not be renewed in time" in told
        assert host.line().startswith("lost: it could not be renewed in time")
        assert host.process.wait(10) == 0
        assert len(stamps.lines()) <= frozen + 1
        margin(stamps.lines()[frozen - 1][1], granted)
        assert is_left_alone(two_labs, granted)


def test_frozen_host_keeps_its_lock(two_labs: Lab) -> None:
    """The renewer is a process of its own: a program that is stopped, or keeps the interpreter, loses nothing."""
    host, stamps, (owner, _) = working(two_labs)
    os.kill(host.pid, signal.SIGSTOP)
    with Contender(two_labs.backend, two_labs.job, two_labs.folder) as other:
        until = boottime() + 1.5 * TTL
        wait_until(lambda: boottime() > until, 3 * TTL)
        assert other.grant is None
        os.kill(host.pid, signal.SIGCONT)
        assert stamps.go_on()
        assert inspected(two_labs)["holder"]["owner"] == owner


@pytest.mark.parametrize("how", ["raises", "exits", "crashes", "hangs", "hogs"])
def test_faulty_renewer(lab: Lab, how: str, margin: Margin) -> None:
    """An exception nobody foresaw, a crash, a request that ends never, a library that keeps the interpreter."""
    faulty = lab.folder / "faulty"
    faulty.mkdir()
    (faulty / "sitecustomize.py").write_text(
        "import distlock.backends\ndistlock.backends.SCHEMES['faulty'] = 'faulty_engine:FaultyBackend'\n"
    )
    path = os.pathsep.join([str(faulty), str(TESTS)])
    host, stamps, _ = working(lab, PYTHONPATH=path, DISTLOCK_BACKEND=f"faulty:{how}:{lab.backend}")
    with Contender(lab.backend, lab.job, lab.folder) as other:
        lost(host)
        granted = other.wait(TTL + 4)
    margin(stamps.last(), granted)


@pytest.fixture
def server(tmp_path: Path) -> RedisServer:
    return RedisServer(tmp_path / "redis")


@pytest.mark.parametrize("silent", [True, False])
def test_cut_off(tmp_path: Path, server: RedisServer, silent: bool, margin: Margin) -> None:
    """Packets dropped, connections refused: told by the clock, with what was wrong; the lock ends with its lease."""
    with server.running(), Proxy(server.port) as proxy:
        lab = Lab(tmp_path, f"redis://127.0.0.1:{proxy.port}")
        try:
            host, stamps, _ = working(lab)
            with Contender(server.url, lab.job, lab.folder) as other:
                if silent:
                    proxy.black_hole()
                else:
                    proxy.refuse()
                reason = lost(host)
                granted = other.wait(TTL + 3)
            margin(stamps.last(), granted)
            assert reason.startswith("lost: it could not be renewed in time (")
            assert f"127.0.0.1:{proxy.port}" in reason
        finally:
            lab.close()


def test_a_blip_is_survived(tmp_path: Path, server: RedisServer) -> None:
    with server.running(), Proxy(server.port) as proxy:
        lab = Lab(tmp_path, f"redis://127.0.0.1:{proxy.port}")
        try:
            host, stamps, _ = working(lab)
            proxy.refuse()
            until = boottime() + 1.2
            wait_until(lambda: boottime() > until)
            proxy.let_pass()
            until = boottime() + TTL
            wait_until(lambda: boottime() > until)
            assert stamps.go_on()
            host.process.kill()
        finally:
            lab.close()


def test_host_killed_while_cut_off(tmp_path: Path, server: RedisServer) -> None:
    """The lock cannot be given back and ends with its lease; the renewer ends all the same."""
    with server.running(), Proxy(server.port) as proxy:
        lab = Lab(tmp_path, f"redis://127.0.0.1:{proxy.port}")
        try:
            host, _, _ = working(lab)
            renewer = host.renewer()
            proxy.black_hole()
            host.process.kill()
            lab.environment["DISTLOCK_BACKEND"] = server.url
            had_within(lab, TTL + 3)
            wait_until(lambda: not is_alive(renewer), 10)
        finally:
            lab.close()


def test_many_holds_leave_nothing(lab: Lab) -> None:
    """Threads of one program, one after the other and side by side: no process, no descriptor, no thread stays."""
    host = Host(
        lab,
        """
        def work(number):
            for _ in range(5):
                with distlock.hold(f"{JOB} {number % 2}", wait=60) as lease:
                    lease.checkpoint()
        with distlock.hold(JOB): pass
        before = sorted(os.listdir("/proc/self/fd"))
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        say(sorted(os.listdir("/proc/self/fd")) == before, threading.active_count())
        say(open(f"/proc/self/task/{os.getpid()}/children").read().strip() or "no child")
        """,
    )
    host.expect("True 1")
    host.expect("no child")
    host.end()
