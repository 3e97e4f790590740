"""What the tests of the ZooKeeper engine share.

A module takes the fixtures that it wants by assignment, as of redis_fixtures."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from kazoo.client import KazooClient

from contenders import environment, take
from distlock.backends.base import Backend, Grant
from distlock.backends.zookeeper import ZooKeeperBackend
from zookeeper_servers import ZooKeeperServer, kazoo


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")).running() as one:
        yield one


@pytest.fixture(scope="module")
def zk(server: ZooKeeperServer) -> Iterator[KazooClient]:
    with kazoo(server) as one:
        yield one


@pytest.fixture
def backend(server: ZooKeeperServer) -> Iterator[ZooKeeperBackend]:
    with opened(server.url) as one:
        yield one


@pytest.fixture
def other(server: ZooKeeperServer) -> Iterator[ZooKeeperBackend]:
    with opened(server.url) as one:
        yield one


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/ж"


@contextmanager
def opened(url: str, password: str | None = None) -> Iterator[ZooKeeperBackend]:
    backend = ZooKeeperBackend.from_url(url, environment(Path("/nonexistent"))._replace(password=password))
    try:
        yield backend
    finally:
        backend.close()


def folder(name: str) -> str:
    return f"/distlock/lock/{quote(name, safe='')}"


def queue(client: KazooClient, name: str) -> list[str]:
    """The nodes of a lock in order, as paths."""
    if not client.exists(folder(name)):
        return []
    return [f"{folder(name)}/{node}" for node in sorted(client.get_children(folder(name)), key=lambda node: node[-10:])]


def data(client: KazooClient, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.get(path)[0])
    return found


def crowd(urls: Sequence[str], name: str, *, holders: int = 4, turns: int = 6) -> list[Grant]:
    """Ten clients take and give back a lock that so many may hold: never more, never two with the same index, and the
    tokens of an index grow. The grants."""
    lock = threading.Lock()
    held: set[int] = set()
    granted: list[Grant] = []

    def work(backend: Backend) -> None:
        for _ in range(turns):
            grant = take(backend, name, holders=holders, seconds=60.0)
            with lock:
                assert grant.holder_index not in held
                held.add(grant.holder_index)
                assert len(held) <= holders
                granted.append(grant)
            time.sleep(0.005)
            with lock:
                held.remove(grant.holder_index)
            backend.release(grant, 5.0)

    with ExitStack() as stack, ThreadPoolExecutor(10) as pool:
        backends = [stack.enter_context(opened(urls[number % len(urls)])) for number in range(10)]
        for done in [pool.submit(work, backend) for backend in backends]:
            done.result()
    assert len({grant.token for grant in granted}) == 10 * turns
    for index in range(holders):
        tokens = [grant.token or 0 for grant in granted if grant.holder_index == index]
        assert tokens == sorted(tokens)
    return granted
