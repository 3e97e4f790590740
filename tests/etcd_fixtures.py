"""A private etcd for a test module, and what is asked of the engine besides the contract.

A module takes the fixtures that it wants by assignment, as of redis_fixtures."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contenders import acquire, environment, request, take, try_once
from distlock.backends.base import SUCCESS, SUCCESS_KEPT, Backend, Grant, Mark
from distlock.backends.etcd import EtcdBackend
from etcd_servers import EtcdMember
from processes import wait_until


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    yield from served(tmp_path_factory.mktemp("etcd"))


@pytest.fixture
def emptied_server(one_server: EtcdMember) -> EtcdMember:
    one_server.clear()
    return one_server


@pytest.fixture
def backend(server: EtcdMember) -> Iterator[EtcdBackend]:
    with opened(server.url) as one:
        yield one


@contextmanager
def opened(url: str) -> Iterator[EtcdBackend]:
    backend = EtcdBackend.from_url(url, environment())
    try:
        yield backend
    finally:
        backend.close()


def queue_of(name: str) -> str:
    return f"/distlock/lock/{name}/"


def record_of(name: str) -> str:
    return f"/distlock/token/{name}"


def success_of(name: str) -> str:
    return f"/distlock/success/{name}"


def mark_of(name: str, slot: str) -> str:
    return f"/distlock/mark/{name}/{slot}"


def only_records(server: EtcdMember, name: str) -> bool:
    """What runs may leave: the last token, and when the last one that succeeded began."""
    return {record_of(name)} <= set(server.keys()) <= {record_of(name), success_of(name)}


def nothing_left(server: EtcdMember, *records: str) -> bool:
    """No lease, and no key but these records."""
    return server.leases() == [] and server.keys() == sorted(records)


@contextmanager
def etcdctl_lock(server: EtcdMember, lock: str, *command: str, waits: bool = False) -> Iterator[subprocess.Popen[str]]:
    """``etcdctl lock LOCK`` beside us, which holds when this begins, or waits. TERM makes it release."""
    before = len(server.keys(f"{lock}/"))
    process = subprocess.Popen(
        ["etcdctl", f"--endpoints={server.place}", "lock", lock, *(("--", *command) if command else ())],
        env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if not waits:
            assert process.stdout
            assert process.stdout.readline().startswith(f"{lock}/")
        else:
            wait_until(lambda: len(server.keys(f"{lock}/")) > before)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(10)
        if process.stdout:
            process.stdout.close()


def alarm_of(backend: EtcdBackend, grant: Grant) -> int:
    """Which a grant has a moment later."""
    found = wait_until(lambda: backend.alarm(grant))
    assert found is not None
    return found


def everything(url: str, name: str) -> None:
    """All that distlock asks of a server."""
    with opened(url) as backend, opened(url) as other:
        assert not backend.inspect(name, 5.0).held
        grant = take(backend, name)
        alarm_of(backend, grant)
        with other.enqueue(request(name, 30.0)) as waiting:
            assert waiting.poll() is None
            with other.enqueue(request(name, 30.0)) as leaving:
                assert leaving.poll() is None
            assert len(backend.inspect(name, 5.0).waiters) == 1
            assert try_once(backend, name) is None
            backend.mark(grant, Mark("begun", 0.0, 60.0), 5.0)
            backend.release(backend.renew(grant, 5.0), 5.0)
            second = acquire(waiting)
            assert backend.revoke(name, second.token, None, "alice@ops", 5.0, now=False)
            other.release(second, 5.0, (Mark(SUCCESS, 1.0, SUCCESS_KEPT), Mark("begun", 1.0, 60.0)), keep_for=60.0)
        assert backend.inspect(name, 5.0).kept
        assert backend.revoke(name, second.token, None, "alice@ops", 5.0, now=False)
        assert backend.marked(name, "begun", 5.0)
        assert name in [state.name for state in backend.locks(5.0)]


def registers(url: str, resource: str) -> None:
    """All that ``fence`` asks of a server."""
    with opened(url) as backend:
        assert [backend.advance_fence(resource, 0, token, 5.0) for token in (7, 9, 8)] == [7, 9, 9]
        backend.reset_fence(resource, 0, 5.0)


def taken_and_given_back(backend: Backend, name: str) -> int:
    grant = take(backend, name)
    backend.release(grant, 5.0)
    return grant.token or 0


def served(folder: Path) -> Iterator[EtcdMember]:
    with EtcdMember(folder).running() as server:
        yield server
