"""A lease on Redis under everything that can happen to a server and a network. Always: the last stamp of the old
holder's child comes before the grant to anybody else, but where the lock was taken away behind Redis' back."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

import redis_fixtures
from contending import Contender
from distlock.clock import boottime
from distlock.deadline import default_grace
from margins import Margin
from processes import Lab, Stamps, is_alive, renewer_of, wait_until
from proxy import Proxy
from redis_fixtures import keys, token_key
from servers import RedisServer

pytestmark = pytest.mark.faults

TTL = 3.0


server = redis_fixtures.server
proxy = redis_fixtures.proxy
lab = redis_fixtures.lab


def stamping(lab: Lab, mode: str = "plain", *options: str, backend: str = "") -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(mode)
    run = lab.start("-b", backend or lab.backend, "--ttl", str(TTL), *options, "job", "--", *command)
    stamps.writer()
    return run, stamps


def scripts(server: RedisServer) -> int:
    """How many were run so far: all that distlock does at a lock is one."""
    found = server.statistics()
    return found["cmdstat_evalsha"] + found["cmdstat_eval"]


def contender(lab: Lab) -> Contender:
    return Contender(lab.backend, "job", lab.folder)


def ended(run: subprocess.Popen[bytes], stamps: Stamps) -> str:
    """The line of a run that lost its lease."""
    _, stderr = run.communicate(timeout=TTL + 5)
    assert run.returncode == 76
    assert not is_alive(stamps.writer())
    text = stderr.decode()
    assert text.startswith("distlock: 'job': lease lost: ")
    assert text.endswith("; COMMAND was stopped\n")
    assert text.count("\n") == 1
    return text


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
@pytest.mark.parametrize(
    "how",
    [("FLUSHALL",), ("DEL", "lock:job"), ("SET", "lock:job", "thief", "PX", "60000"), ("RENAME", "lock:job", "gone")],
    ids=lambda how: how[0],
)
def test_a_lock_taken_away_by_somebody(lab: Lab, server: RedisServer, mode: str, how: tuple[str, ...]) -> None:
    """The next renewal tells: TERM at once, everything dead after the grace."""
    run, stamps = stamping(lab, mode)
    server.command(*how)
    lost = boottime()
    text = ended(run, stamps)
    assert stamps.last() - lost < TTL / 3 + default_grace(TTL) + 0.3
    assert ("somebody else" if how[0] == "SET" else "its key was removed") in text
    if how[0] == "SET":
        assert server.command("GET", "lock:job") == b"thief"


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
def test_a_frozen_server(lab: Lab, server: RedisServer, mode: str, margin: Margin) -> None:
    """The child is dead before the key could expire."""
    run, stamps = stamping(lab, mode)
    before = boottime()
    left = server.command("PTTL", "lock:job")
    server.freeze()
    expires = before + left / 1000
    assert "could not be renewed in time" in ended(run, stamps)
    assert stamps.last() < expires
    server.thaw()
    with contender(lab) as other:
        margin(stamps.last(), other.wait(TTL + 2))


def test_a_server_that_stalls_for_less_than_the_lease(lab: Lab, server: RedisServer, margin: Margin) -> None:
    run, stamps = stamping(lab, "plain", "--ttl", "10")
    server.freeze()
    stamps.keep_coming(4)  # the stall
    server.thaw()
    with contender(lab) as other:
        until = boottime() + 8
        while boottime() < until:
            assert stamps.go_on()
            assert other.grant is None
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        margin(stamps.last(), other.wait(2))


def test_a_restart_without_the_data(lab: Lab, server: RedisServer) -> None:
    """Ended with 76, and the next token is a greater one."""
    run, stamps = stamping(lab)
    token = int(server.command("GET", token_key("job"))[2:])
    server.restart()
    ended(run, stamps)
    assert lab.run("job", "--", "sh", "-c", f"test $DISTLOCK_FENCING_TOKEN -gt {token}").returncode == 0


def test_a_restart_with_the_data(tmp_path: Path, margin: Margin) -> None:
    with RedisServer(tmp_path / "redis", keep=True).running() as server, ExitStack() as stack:
        lab = Lab(tmp_path, server.url)
        stack.callback(lab.close)
        run, stamps = stamping(lab)
        server.restart()
        with contender(lab) as other:
            until = boottime() + 2 * TTL
            while boottime() < until:
                assert stamps.go_on()
                assert other.grant is None
            run.terminate()
            assert run.wait(5) == -signal.SIGTERM
            margin(stamps.last(), other.wait(2))


def test_connections_killed_all_the_time(lab: Lab, server: RedisServer) -> None:
    run, stamps = stamping(lab)
    owner = server.command("GET", "lock:job")
    until = boottime() + 3 * TTL
    while boottime() < until:
        for kind in ("normal", "pubsub"):
            server.command("CLIENT", "KILL", "TYPE", kind)
        assert stamps.go_on()
        assert server.command("GET", "lock:job") == owner
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    assert set(keys(server)) == {token_key("job")}


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
@pytest.mark.parametrize("how", ["black hole", "refused"])
def test_a_network_that_is_cut(lab: Lab, proxy: Proxy, how: str, mode: str, margin: Margin) -> None:
    run, stamps = stamping(lab, mode, backend=f"redis://127.0.0.1:{proxy.port}")
    with contender(lab) as other:
        if how == "refused":
            proxy.refuse()
        else:
            proxy.black_hole()
        granted = other.wait(TTL + 3)
        ended(run, stamps)
    margin(stamps.last(), granted)


@pytest.mark.parametrize("of_ttl", [0.14, 0.8])
def test_answers_that_come_late_and_then_none(lab: Lab, proxy: Proxy, of_ttl: float, margin: Margin) -> None:
    """What counts is when a renewal was sent: the server began to count before its answer came. At 0.14 each renewal
    is answered just in time, at 0.8 none is."""
    run, stamps = stamping(lab, "deaf", backend=f"redis://127.0.0.1:{proxy.port}")
    with contender(lab) as other:
        proxy.delay_answers(of_ttl * TTL)
        if of_ttl < 0.5:
            until = boottime() + 2 * TTL
            while boottime() < until:
                assert stamps.go_on()
        proxy.black_hole()
        granted = other.wait(TTL + 3)
        ended(run, stamps)
    margin(stamps.last(), granted)


def test_a_short_cut_is_survived(lab: Lab, proxy: Proxy) -> None:
    """Also one that swallows a renewal, whose answer will never come."""
    run, stamps = stamping(lab, "plain", backend=f"redis://127.0.0.1:{proxy.port}")
    for cut in ("refused", "black hole") * 2:
        accepted, swallowed = proxy.accepted, proxy.swallowed
        if cut == "refused":
            proxy.refuse()
            stamps.keep_coming(0.5)  # the cut
        else:
            proxy.black_hole()
            wait_until(lambda: proxy.swallowed > swallowed, TTL)  # noqa: B023 - used at once
        proxy.let_pass()
        wait_until(lambda: proxy.accepted > accepted, TTL)  # noqa: B023
        until = boottime() + TTL / 2
        while boottime() < until:
            assert stamps.go_on()
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM


def test_after_a_freeze_of_everything_nothing_is_sent(lab: Lab, server: RedisServer, margin: Margin) -> None:
    """No renewal, and no release: the lock is somebody else's."""
    run, stamps = stamping(lab, "deaf")
    everything = [run.pid, renewer_of(run.pid), stamps.writer()]
    with contender(lab) as other:
        for pid in everything:
            os.kill(pid, signal.SIGSTOP)
        margin(stamps.last(), other.wait(TTL + 2))
    asked = scripts(server)
    thawed = boottime()
    for pid in everything:
        os.kill(pid, signal.SIGCONT)
    ended(run, stamps)
    assert stamps.last() - thawed < 0.2
    assert scripts(server) == asked


def test_kill_9_of_the_wrapper(lab: Lab, margin: Margin) -> None:
    run, stamps = stamping(lab, "deaf daemon", "--ttl", "60")
    with contender(lab) as other:
        killed = boottime()
        run.kill()
        granted = other.wait(5)
    margin(stamps.last(), granted)
    assert granted - killed < 1.0


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_server_that_is_gone_at_the_release(lab: Lab, server: RedisServer, how: str) -> None:
    """The command has done its work: its code stands, and one line says that the lock was not given back."""
    run = lab.start(
        "--ttl", "30", "job", "--", "sh", "-c", "echo started; while test -e job; do sleep 0.01; done; exit 7"
    )
    (lab.folder / "job").touch()
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    if how == "killed":
        server.kill()
    else:
        server.freeze()
    (lab.folder / "job").unlink()
    _, stderr = run.communicate(timeout=8)
    assert run.returncode == 7
    assert stderr.decode().count("\n") == 1
    assert server.place in stderr.decode()
    assert stderr.startswith(b"distlock: ")


def test_no_client_library_in_the_supervisor(lab: Lab) -> None:
    """redis-py brings ssl, by which its presence shows."""
    run, _ = stamping(lab)
    assert "/_ssl." in Path(f"/proc/{renewer_of(run.pid)}/maps").read_text()
    assert "/_ssl." not in Path(f"/proc/{run.pid}/maps").read_text()
