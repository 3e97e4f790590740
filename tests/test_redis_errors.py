"""What a Redis can answer besides an answer, each from a server in that very state: one line, the right kind, in time,
and never the password."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import redis_fixtures
from contenders import request, take, try_once
from distlock.backends.base import ConfigurationError, DistlockError, Grant, Refused, Unavailable
from distlock.backends.redis import RedisBackend
from distlock.clock import boottime
from processes import wait_until
from redis_fixtures import keys, opened, token_key
from servers import RedisServer, free_port

SECRET = "hunter2"


server = redis_fixtures.server
backend = redis_fixtures.backend


@contextmanager
def raises(kind: type[DistlockError], message: str, *, permanent: bool = False) -> Iterator[None]:
    with pytest.raises(kind, match=message) as caught:
        yield
    text = str(caught.value)
    assert "\n" not in text
    assert SECRET not in text
    assert "script" not in text.replace("somebody's script", "").replace("executing the script", "")
    assert caught.value.__cause__ is not None
    if isinstance(caught.value, Unavailable):
        assert caught.value.permanent == permanent


def writing(backend: RedisBackend, grant: Grant) -> list[Callable[[], object]]:
    """Every call that writes."""
    return [
        lambda: try_once(backend, "other"),
        lambda: backend.renew(grant, 2.0),
        lambda: backend.release(grant, 2.0),
    ]


def test_read_only_replica(server: RedisServer, backend: RedisBackend) -> None:
    grant = take(backend, "n")
    server.command("REPLICAOF", "127.0.0.1", str(free_port()))
    for call in writing(backend, grant):
        with raises(Unavailable, rf"^{server.place} is a read-only replica$"):
            call()
    assert backend.inspect("n", 2.0).held  # a replica can tell
    server.command("REPLICAOF", "NO", "ONE")
    backend.release(backend.renew(grant, 2.0), 2.0)


def test_a_replica_without_its_master_that_must_not_serve(server: RedisServer, backend: RedisBackend) -> None:
    server.command("CONFIG", "SET", "replica-serve-stale-data", "no")
    server.command("REPLICAOF", "127.0.0.1", str(free_port()))
    with raises(Unavailable, "is a replica that has lost its master"):
        backend.inspect("n", 2.0)


def test_too_few_replicas(server: RedisServer, backend: RedisBackend) -> None:
    server.command("CONFIG", "SET", "min-replicas-to-write", "1")
    with raises(Unavailable, "too few replicas"):
        try_once(backend, "n")


def test_loading(tmp_path: Path) -> None:
    """A thousand keys, a millisecond each."""
    with RedisServer(tmp_path / "redis", options=("--rdbcompression", "no")).running() as server:
        server.command("DEBUG", "POPULATE", "1000", "key", "1000")
        server.command("SAVE")
        server.restart("--key-load-delay", "1500", "--loading-process-events-interval-bytes", "1024", ready=False)
        with opened(server.url) as backend:
            wait_until(server.socket.exists)
            seen: list[str] = []

            def granted() -> Grant | None:
                try:
                    return try_once(backend, "n")
                except Unavailable as error:
                    assert not error.permanent
                    seen.append(str(error))
                    return None

            wait_until(granted, 20)
        assert f"{server.place} is loading its data" in seen


def test_busy_with_a_script(server: RedisServer, backend: RedisBackend) -> None:
    grant = take(backend, "n")
    server.command("CONFIG", "SET", "busy-reply-threshold", "50")

    def spin() -> None:
        with closing(server.client()) as client, pytest.raises(Exception, match="killed"):
            client.eval("while true do end", 0)

    thread = threading.Thread(target=spin)
    thread.start()
    try:

        def is_busy() -> bool:
            try:
                backend.renew(grant, 2.0)
            except Unavailable as error:
                return "busy" in str(error)
            return False

        wait_until(is_busy)
        for call in writing(backend, grant):
            with raises(Unavailable, "is busy with somebody's script"):
                call()
    finally:
        server.command("SCRIPT", "KILL")
        thread.join()
    backend.release(backend.renew(grant, 2.0), 2.0)


def test_out_of_memory(server: RedisServer, backend: RedisBackend) -> None:
    grant = take(backend, "n")
    server.command("CONFIG", "SET", "maxmemory", "1")
    with raises(Unavailable, "is out of memory"):
        try_once(backend, "other")
    with raises(Unavailable, "is out of memory"):
        try_once(backend, "n")
    assert set(keys(server)) == {"lock:n", "distlock:{lock:n}:token", "distlock:{lock:n}:holder"}
    # Who holds a lock keeps it and can give it back: neither needs memory.
    backend.release(backend.renew(grant, 2.0), 2.0)
    server.command("CONFIG", "SET", "maxmemory", "0")
    assert try_once(backend, "n")


def test_last_save_failed(server: RedisServer, backend: RedisBackend) -> None:
    server.command("CONFIG", "SET", "save", "3600 1")
    (server.folder / "taken").mkdir()
    server.command("CONFIG", "SET", "dbfilename", "taken")  # a file cannot be renamed over a folder
    server.command("BGSAVE")
    wait_until(lambda: server.command("INFO", "persistence")["rdb_last_bgsave_status"] == "err")
    with raises(Unavailable, "cannot save its data to disk"):
        try_once(backend, "n")


def test_forgotten_scripts_are_told_again(server: RedisServer, backend: RedisBackend) -> None:
    grant = take(backend, "n")
    for _ in range(3):
        server.command("SCRIPT", "FLUSH")
        grant = backend.renew(grant, 2.0)
        server.command("SCRIPT", "FLUSH")
        assert backend.inspect("n", 2.0).held
        server.command("SCRIPT", "FLUSH")
        assert [state.name for state in backend.locks(2.0)] == ["n"]
        server.command("SCRIPT", "FLUSH")
        assert try_once(backend, "n") is None
    server.command("SCRIPT", "FLUSH")
    backend.release(grant, 2.0)
    assert not backend.inspect("n", 2.0).held


def test_members_of_a_cluster(tmp_path: Path) -> None:
    """Each has half of the slots, so that one of the two always sends us to the other."""
    cluster = ("--cluster-enabled", "yes", "--cluster-port")
    nodes = [RedisServer(tmp_path / str(half), (*cluster, str(free_port()))) for half in range(2)]
    with nodes[0].running(), nodes[1].running(), opened(nodes[0].url) as first, opened(nodes[1].url) as second:
        with raises(Unavailable, "cluster that is down"):
            try_once(first, "n")
        for half, node in enumerate(nodes):
            node.command("CLUSTER", "ADDSLOTSRANGE", 8192 * half, 8192 * half + 8191)
            node.command("CLUSTER", "SET-CONFIG-EPOCH", half + 1)
        nodes[0].command("CLUSTER", "MEET", "127.0.0.1", nodes[1].port, nodes[1].options[-1])
        for node in nodes:
            wait_until(lambda: b"cluster_state:ok" in node.command("CLUSTER", "INFO"), 20)  # noqa: B023
        has_it, has_it_not = (
            (first, second) if nodes[0].command("CLUSTER", "KEYSLOT", "lock:n") < 8192 else (second, first)
        )
        assert try_once(has_it, "n")
        with raises(Unavailable, "belongs to a Redis Cluster, which a single address does not reach", permanent=True):
            try_once(has_it_not, "n")


def test_too_many_clients(server: RedisServer, backend: RedisBackend) -> None:
    server.command("CONFIG", "SET", "maxclients", "1")
    with closing(server.client()) as client:
        client.ping()
        with raises(Unavailable, "max number of clients reached"):
            backend.inspect("n", 2.0)


def test_database_that_is_not_there(server: RedisServer) -> None:
    with opened(f"{server.url}/99") as backend, raises(ConfigurationError, "database"):
        try_once(backend, "n")
    assert keys(server) == {}


def test_databases_are_apart(server: RedisServer, backend: RedisBackend) -> None:
    take(backend, "n")
    with opened(f"{server.url}/3") as third, opened(f"{server.unix_url}?db=3") as same:
        assert take(third, "n")
        assert try_once(same, "n") is None


def test_wrong_and_missing_passwords(server: RedisServer) -> None:
    server.command("CONFIG", "SET", "requirepass", "right")
    place = server.place
    for url in (f"redis://:{SECRET}@{place}", f"redis://default:{SECRET}@{place}", f"redis://{SECRET}:x@{place}"):
        with opened(url) as backend, raises(Refused, rf"^{place} refuses the user or password$"):
            try_once(backend, "n")
    for url in (f"redis://{place}",):
        with opened(url) as backend, raises(Refused, rf"^{place} wants a password$"):
            try_once(backend, "n")
    for url in (f"redis://:right@{place}", f"redis://default:right@{place}"):
        with opened(url) as backend:
            assert take(backend, url)


def test_a_password_that_is_changed_under_a_lease(server: RedisServer) -> None:
    """The connection stays logged in; a new one is refused."""
    server.command("ACL", "SETUSER", "job", "on", ">old", "~*", "&*", "+@all")
    with opened(f"redis://job:old@{server.place}") as backend:
        grant = take(backend, "n")
        server.command("ACL", "SETUSER", "job", "resetpass", ">new")
        grant = backend.renew(grant, 2.0)
        server.command("CLIENT", "KILL", "USER", "job")
        with raises(Refused, "refuses the user or password"):
            backend.renew(grant, 2.0)


def test_nobody_listens(tmp_path: Path) -> None:
    port = free_port()
    with opened(f"redis://127.0.0.1:{port}") as backend, raises(Unavailable, f"^127.0.0.1:{port} is not reached: Conn"):
        try_once(backend, "n")
    with opened(f"redis+unix://{tmp_path}/none") as backend, raises(Unavailable, "none is not reached: No such file"):
        try_once(backend, "n")


def test_a_name_that_is_not_resolved() -> None:
    with opened("redis://no-such-host.invalid") as backend, raises(Unavailable, "name is not resolved"):
        try_once(backend, "n")


def test_a_frozen_server_is_unavailable_in_time(server: RedisServer, backend: RedisBackend) -> None:
    grant = take(backend, "n")
    server.freeze()
    with opened(server.url) as fresh:
        for engine in (backend, fresh):  # an old connection, which is closed then, and new ones
            for call in (
                lambda: engine.renew(grant, 0.4),  # noqa: B023
                lambda: engine.release(grant, 0.4),  # noqa: B023
                lambda: engine.inspect("n", 0.4),  # noqa: B023
                lambda: engine.enqueue(request("n", 1.2)).poll(),  # noqa: B023
                lambda: list(engine.locks(0.4)),  # noqa: B023
            ):
                start = boottime()
                with raises(Unavailable, f"^{server.place} does not answer$"):
                    call()
                assert 0.3 < boottime() - start < 0.7
    server.thaw()
    # Who could not connect has sent nothing that comes through late.
    backend.release(backend.renew(grant, 2.0), 2.0)
    assert set(keys(server)) == {token_key("n")}


def test_something_else_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            one, _ = listener.accept()
            with one:
                one.recv(1000)
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        wrong = "does not speak the Redis protocol"
        with opened(f"redis://127.0.0.1:{port}") as backend, raises(Unavailable, wrong, permanent=True):
            backend.inspect("n", 2.0)
        thread.join()
