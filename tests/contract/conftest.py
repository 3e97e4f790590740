from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from contenders import environment
from distlock.backends import open_backend
from distlock.backends.base import Backend

from .engines import ENGINES, Engine


@pytest.fixture(scope="session", params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found


@pytest.fixture(scope="session")
def url(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the whole session, so tests use locks of their own (``name``)."""
    with engine.serve(tmp_path_factory.mktemp(engine.name)) as served:
        yield served


@pytest.fixture
def open_more(url: str) -> Iterator[Callable[[], Backend]]:
    """Opens the engine once more, as another process would."""
    opened: list[Backend] = []

    def open_one() -> Backend:
        opened.append(open_backend(url, environment()))
        return opened[-1]

    yield open_one
    for backend in opened:
        backend.close()


@pytest.fixture
def backend(open_more: Callable[[], Backend]) -> Backend:
    return open_more()


@pytest.fixture
def other(open_more: Callable[[], Backend]) -> Backend:
    """A second client of the same engine."""
    return open_more()


@pytest.fixture
def name() -> str:
    return f"lock {os.urandom(6).hex()}"
