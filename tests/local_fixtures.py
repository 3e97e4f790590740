"""A directory of local locks for each test, and backends on it.

A module takes the fixtures that it wants by assignment, as of redis_fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contenders import environment
from distlock.backends.local import LocalBackend


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"local://{tmp_path / 'locks'}"


@pytest.fixture
def backend(url: str) -> Iterator[LocalBackend]:
    opened = LocalBackend.from_url(url, environment())
    yield opened
    opened.close()


@pytest.fixture
def other(url: str) -> Iterator[LocalBackend]:
    opened = LocalBackend.from_url(url, environment())
    yield opened
    opened.close()
