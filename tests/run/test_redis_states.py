"""What a Redis in trouble means for a run: at the start, one line and the right code within seconds and no child; under
a lease, a blip is survived, and a trouble that lasts ends the command before the key could expire."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest
import redis

from distlock.clock import boottime
from processes import Lab, Stamps, is_alive, wait_until
from redis_fixtures import keys, token_key
from servers import RedisServer, free_port

pytestmark = pytest.mark.faults

TTL = 3.0
PASSWORD = "hunter2"


@contextmanager
def setting(server: RedisServer, name: str, value: str, normal: str) -> Iterator[None]:
    server.command("CONFIG", "SET", name, value)
    yield
    server.command("CONFIG", "SET", name, normal)


@contextmanager
def read_only(server: RedisServer) -> Iterator[None]:
    server.command("REPLICAOF", "127.0.0.1", str(free_port()))
    yield
    server.command("REPLICAOF", "NO", "ONE")


@contextmanager
def busy(server: RedisServer) -> Iterator[None]:
    """With a script that does not end until it is killed."""
    server.command("CONFIG", "SET", "busy-reply-threshold", "50")

    def spin() -> None:
        with closing(server.client()) as client:
            client.connection_pool.connection_kwargs["socket_timeout"] = 60
            with pytest.raises(redis.ResponseError, match="killed"):
                client.eval("while true do end", 0)

    def is_busy() -> bool:
        try:
            server.command("PING")
        except redis.ResponseError as error:
            return "BUSY" in str(error)
        return False

    thread = threading.Thread(target=spin)
    thread.start()
    wait_until(is_busy)
    yield
    server.command("SCRIPT", "KILL")
    thread.join(10)


@contextmanager
def no_scripts(server: RedisServer) -> Iterator[None]:
    server.command("ACL", "SETUSER", "job", "-@scripting")
    yield
    server.command("ACL", "SETUSER", "job", "+@all")


@contextmanager
def no_key(server: RedisServer) -> Iterator[None]:
    server.command("ACL", "SETUSER", "job", "resetkeys", "~other")
    yield
    server.command("ACL", "SETUSER", "job", "~*")


@contextmanager
def another_password(server: RedisServer) -> Iterator[None]:
    """Connections that there are would be left alone, so they are cut."""
    server.command("ACL", "SETUSER", "job", "resetpass", ">another")
    server.command("CLIENT", "KILL", "USER", "job")
    yield
    server.command("ACL", "SETUSER", "job", f">{PASSWORD}")


@contextmanager
def unable_to_save(server: RedisServer) -> Iterator[None]:
    blocked = server.folder / "dump.rdb"
    blocked.mkdir()
    (blocked / "x").touch()
    server.command("CONFIG", "SET", "save", "3600 1")
    server.command("BGSAVE")
    wait_until(lambda: server.command("INFO", "persistence")["rdb_last_bgsave_status"] == "err")
    yield
    server.command("CONFIG", "SET", "save", "")


State = Callable[[RedisServer], AbstractContextManager[None]]
STATES: dict[str, tuple[State, int, str]] = {
    "READONLY": (read_only, 69, "is a read-only replica"),
    "BUSY": (busy, 69, "is busy with somebody's script"),
    "OOM": (lambda server: setting(server, "maxmemory", "1", "0"), 69, "is out of memory: its maxmemory is reached"),
    "MISCONF": (unable_to_save, 69, "refuses to write: it cannot save its data to disk"),
    "NOREPLICAS": (
        lambda server: setting(server, "min-replicas-to-write", "1", "0"),
        69,
        "refuses to write: it has too few replicas",
    ),
    "NOPERM of a command": (no_scripts, 77, "does not allow it"),
    "NOPERM of a key": (no_key, 77, "does not allow it"),
    "WRONGPASS": (another_password, 77, "refuses the user or password"),
}
each_state = pytest.mark.parametrize(("state", "code", "words"), STATES.values(), ids=STATES)
LASTING = {name: state for name, state in STATES.items() if name != "OOM"}
"""Not OOM: a renewal needs no memory."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis").running() as one:
        one.command("ACL", "SETUSER", "job", "on", f">{PASSWORD}", "~*", "&*", "+@all")
        yield one


@pytest.fixture
def lab(tmp_path: Path, server: RedisServer) -> Iterator[Lab]:
    made = Lab(tmp_path, f"redis://job@{server.place}", {"DISTLOCK_PASSWORD": PASSWORD})
    yield made
    made.close()


def stamping(lab: Lab) -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper("deaf daemon")
    run = lab.start("--ttl", str(TTL), "job", "--", *command)
    stamps.writer()
    return run, stamps


@each_state
@pytest.mark.parametrize("options", [["-n"], ["-w", "1"]], ids=" ".join)
def test_nothing_is_started(
    lab: Lab, server: RedisServer, state: State, code: int, words: str, options: list[str]
) -> None:
    mark = lab.folder / "mark"
    with state(server):
        start = time.monotonic()
        done = lab.run(*options, "job", "--", "touch", str(mark))
        assert time.monotonic() - start < 8
    line = done.stderr.decode()
    assert (done.returncode, done.stdout, line.count("\n")) == (code, b"", 1), line
    assert line.startswith(f"distlock: {server.place} {words}")
    assert PASSWORD not in line
    assert not mark.exists()
    assert keys(server) == {}
    assert lab.run("-n", "job", "--", "touch", str(mark)).returncode == 0
    assert mark.exists()


@each_state
def test_a_blip_is_survived(lab: Lab, server: RedisServer, state: State, code: int, words: str) -> None:
    run, stamps = stamping(lab)
    asked = boottime()
    with state(server):
        wait_until(lambda: boottime() > asked + TTL / 3 + 0.2)  # at least one renewal is in vain
    until = boottime() + TTL
    while boottime() < until:
        assert stamps.go_on(), (code, words)
    run.kill()
    assert run.wait(5) < 0


@pytest.mark.parametrize(("state", "code", "words"), LASTING.values(), ids=LASTING)
def test_a_trouble_that_lasts(lab: Lab, server: RedisServer, state: State, code: int, words: str) -> None:
    """Renewals are tried until the end, and the command is dead before the server could give the lock away."""
    run, stamps = stamping(lab)
    asked = boottime()
    expires = asked + server.command("PTTL", "lock:job") / 1000  # or later, if it is renewed before the trouble comes
    with state(server):
        begun = boottime()
        _, stderr = run.communicate(timeout=TTL + 5)
    assert (run.returncode, stderr.decode().count("\n")) == (76, 1), code
    assert "could not be renewed in time" in stderr.decode()
    assert f"{server.place} {words}" in stderr.decode()
    assert not is_alive(stamps.writer())
    assert expires - TTL / 2 < stamps.last() < begun + TTL


def test_a_server_out_of_memory_does_not_end_what_runs(lab: Lab, server: RedisServer) -> None:
    run, stamps = stamping(lab)
    with setting(server, "maxmemory", "1", "0"):
        until = boottime() + 2 * TTL
        while boottime() < until:
            assert stamps.go_on()
        run.kill()
        assert run.wait(5) < 0
        wait_until(lambda: set(keys(server)) == {token_key("job")})


def test_loading(lab: Lab, server: RedisServer) -> None:
    """Some seconds of it: too long for one try, no trouble for somebody who waits."""
    server.command("ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all")
    server.command("DEBUG", "POPULATE", 1000, "key", 1000)
    server.command("SAVE")
    server.restart("--key-load-delay", "3000", "--loading-process-events-interval-bytes", "1024", ready=False)
    plain = {"DISTLOCK_BACKEND": server.url, "DISTLOCK_PASSWORD": ""}
    wait_until(server.socket.exists)

    def told() -> bool:
        done = lab.run("-n", "job", "--", "true", environment=plain)
        assert done.returncode == 69
        return done.stderr.decode() == f"distlock: {server.place} is loading its data\n"

    wait_until(told)
    assert lab.run("-w", "9", "job", "--", "true", environment=plain).returncode == 0


def test_scripts_that_are_forgotten_all_the_time(lab: Lab, server: RedisServer) -> None:
    """NOSCRIPT is no trouble: they are told again."""
    run, stamps = stamping(lab)
    owner = server.command("GET", "lock:job")
    until = boottime() + 2 * TTL
    while boottime() < until:
        server.command("SCRIPT", "FLUSH")
        assert stamps.go_on()
        assert server.command("GET", "lock:job") == owner
    run.kill()
    run.wait(5)
    wait_until(lambda: set(keys(server)) == {token_key("job")})
