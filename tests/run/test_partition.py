"""The network to the backend is silent, and something else is wrong as well. Over Redis, through a proxy."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import redis_fixtures
from contending import Contender
from margins import Margin
from processes import Lab, Stamps, is_alive, renewer_of, wait_until
from proxy import Proxy
from servers import RedisServer

pytestmark = pytest.mark.faults

TTL = 3.0
DESIGNED = 0.53
"""What the deadline leaves of such a TTL (distlock.deadline); killing may take half of it."""
MODES = ["plain", "deaf", "deaf daemon bare", "deaf storm"]


server = redis_fixtures.server
proxy = redis_fixtures.proxy


@pytest.fixture
def lab(tmp_path: Path, proxy: Proxy) -> Iterator[Lab]:
    made = Lab(tmp_path, f"redis://127.0.0.1:{proxy.port}")
    yield made
    made.close()


def stamping(lab: Lab, mode: str) -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(mode)
    run = lab.start("--ttl", str(TTL), "job", "--", *command)
    stamps.writer()
    return run, stamps


def is_stopped(pid: int) -> bool:
    return "State:\tT" in Path(f"/proc/{pid}/status").read_text()


@pytest.mark.parametrize("mode", MODES)
def test_silent_network(lab: Lab, server: RedisServer, proxy: Proxy, mode: str, margin: Margin) -> None:
    run, stamps = stamping(lab, mode)
    with Contender(server.url, "job", lab.folder) as other:
        proxy.black_hole()
        granted = other.wait(TTL + 3)
    margin(stamps.last(), granted, DESIGNED / 2)
    assert run.wait(5) == 76
    assert not is_alive(stamps.writer())


@pytest.mark.parametrize("mode", MODES)
def test_silent_network_and_a_stopped_supervisor(
    lab: Lab, server: RedisServer, proxy: Proxy, mode: str, margin: Margin
) -> None:
    """The renewer ends the tree."""
    run, stamps = stamping(lab, mode)
    with Contender(server.url, "job", lab.folder) as other:
        os.kill(run.pid, signal.SIGSTOP)
        proxy.black_hole()
        granted = other.wait(TTL + 3)
        margin(stamps.last(), granted, DESIGNED / 2)
    os.kill(run.pid, signal.SIGCONT)
    _, stderr = run.communicate(timeout=5)
    assert run.returncode == 76
    assert b"lease lost" in stderr


def test_silent_network_and_a_suspended_job(lab: Lab, server: RedisServer, proxy: Proxy, margin: Margin) -> None:
    """Stopped by job control, supervisor and child; the renewer ends the stopped child before the grant."""
    run, stamps = stamping(lab, "plain")
    child = stamps.writer()
    with Contender(server.url, "job", lab.folder) as other:
        run.send_signal(signal.SIGTSTP)
        wait_until(lambda: is_stopped(child) and is_stopped(run.pid))
        proxy.black_hole()
        granted = other.wait(TTL + 3)
        assert not is_alive(child)
        margin(stamps.last(), granted, DESIGNED / 2)
    os.kill(run.pid, signal.SIGCONT)
    assert run.wait(5) == 76


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_silent_network_and_a_renewer_that_is_gone(
    lab: Lab, server: RedisServer, proxy: Proxy, how: signal.Signals, margin: Margin
) -> None:
    run, stamps = stamping(lab, "deaf daemon")
    with Contender(server.url, "job", lab.folder) as other:
        proxy.black_hole()
        os.kill(renewer_of(run.pid), how)
        granted = other.wait(TTL + 3)
    margin(stamps.last(), granted, DESIGNED / 2)
    assert run.wait(5) == 76


def test_silent_network_and_a_killed_supervisor(lab: Lab, server: RedisServer, proxy: Proxy, margin: Margin) -> None:
    """The tree dies at once; the lock cannot be given back and ends with its lease."""
    run, stamps = stamping(lab, "deaf daemon")
    with Contender(server.url, "job", lab.folder) as other:
        proxy.black_hole()
        run.kill()
        wait_until(lambda: not is_alive(stamps.writer()), 1)
        granted = other.wait(TTL + 3)
    margin(stamps.last(), granted, DESIGNED / 2)


def test_waiter_cut_off_starts_nothing(lab: Lab, server: RedisServer, proxy: Proxy) -> None:
    """It may have been granted the lock without learning of it: then the lease ends unused."""
    holder = lab.start("-b", server.url, "job", "--", "sh", "-c", "echo started; exec sleep 60")
    assert holder.stdout
    assert holder.stdout.readline() == b"started\n"
    mark = lab.folder / "mark"
    waiter = lab.start("-w", "8", "job", "--", "touch", str(mark))
    wait_until(lambda: server.command("ZCARD", "distlock:{lock:job}:queue") == 1)
    proxy.black_hole()
    holder.terminate()
    assert lab.run("-b", server.url, "-w", "10", "job", "--", "true").returncode == 0
    assert waiter.wait(15) == 69
    assert not mark.exists()
