"""Three independent Redis and a redlock of them; a module takes the fixtures as it does those of redis_fixtures.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contenders import environment
from distlock.backends import open_backend
from distlock.backends.base import Backend
from redis_groups import independent, redlock_url
from servers import RedisServer


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[RedisServer]]:
    with independent(tmp_path / "nodes") as some:
        yield some


@pytest.fixture
def open_more(nodes: list[RedisServer]) -> Iterator[Callable[[], Backend]]:
    opened: list[Backend] = []

    def one() -> Backend:
        opened.append(open_backend(redlock_url(nodes), environment()))
        return opened[-1]

    yield one
    for backend in opened:
        backend.close()


@pytest.fixture
def backend(open_more: Callable[[], Backend]) -> Backend:
    return open_more()


@pytest.fixture
def other(open_more: Callable[[], Backend]) -> Backend:
    return open_more()


def having(nodes: list[RedisServer], name: str = "n") -> list[bytes | None]:
    return [node.command("GET", f"lock:{name}") for node in nodes]
