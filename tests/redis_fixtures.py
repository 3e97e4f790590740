"""Private Redis servers for test modules, and what is asked of them besides the contract.

A module takes the fixtures that it wants by assignment, ``server = redis_fixtures.server``, under the name by which the
others ask for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from contenders import environment
from distlock.backends import open_backend
from distlock.backends.base import Backend
from distlock.backends.redis import RedisBackend
from processes import Lab
from proxy import Proxy
from servers import RedisServer

OURS = ("token", "holder", "queue", "waiters", "marks")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One for each test."""
    with RedisServer(tmp_path / "redis").running() as one:
        yield one


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis") / "one").running() as one:
        yield one


@pytest.fixture
def emptied_server(one_server: RedisServer) -> RedisServer:
    """One for the module, without any key. To be had as ``server``, beside ``one_server``."""
    one_server.command("FLUSHALL")
    return one_server


@pytest.fixture
def backend(server: RedisServer) -> Iterator[RedisBackend]:
    with opened(server.url) as one:
        yield one


@pytest.fixture
def proxy(server: RedisServer) -> Iterator[Proxy]:
    with Proxy(server.port) as one:
        yield one


@pytest.fixture
def lab(tmp_path: Path, server: RedisServer) -> Iterator[Lab]:
    """The command on the server."""
    made = Lab(tmp_path, server.url)
    yield made
    made.close()


@pytest.fixture
def lab_behind_proxy(tmp_path: Path, proxy: Proxy) -> Iterator[Lab]:
    """The command, which reaches the server through the proxy."""
    made = Lab(tmp_path, f"redis://127.0.0.1:{proxy.port}")
    yield made
    made.close()


@contextmanager
def opened(url: str) -> Iterator[RedisBackend]:
    backend = RedisBackend.from_url(url, environment())
    try:
        yield backend
    finally:
        backend.close()


@contextmanager
def opened_all(url: str, count: int) -> Iterator[list[Backend]]:
    """As so many processes would open it."""
    backends = [open_backend(url, environment()) for _ in range(count)]
    try:
        yield backends
    finally:
        for backend in backends:
            backend.close()


def keys(server: RedisServer) -> dict[str, int]:
    """Every key with its PTTL."""
    return {key.decode(): server.command("PTTL", key) for key in server.command("KEYS", "*")}


def token_key(name: str) -> str:
    return f"distlock:{{lock:{name}}}:token"


def marks_key(name: str) -> str:
    return f"distlock:{{lock:{name}}}:marks"


def served(folder: Path, make: Callable[[Path], RedisServer] = RedisServer) -> Iterator[RedisServer]:
    with make(folder).running() as server:
        yield server
