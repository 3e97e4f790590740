"""The engines under contract. A new one is one entry: where it runs, privately, and how short its TTLs may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from postgres_servers import postgres
from servers import RedisServer


@dataclass(frozen=True)
class Engine:
    name: str
    serve: Callable[[Path], AbstractContextManager[str]]
    """Starts a private server that keeps its files in the folder, gives its URL, and ends it."""
    ttl: float
    """The shortest TTL with which a lease can be kept by renewals every third of it."""
    dropped_within: float
    """Seconds after which a killed waiter stands in nobody's way."""


@contextmanager
def _local(folder: Path) -> Iterator[str]:
    yield f"local://{folder / 'locks'}"


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    with RedisServer(folder).running() as server:
        yield server.url


@contextmanager
def _postgres(_: Path) -> Iterator[str]:
    with postgres() as server:
        yield server.url


@contextmanager
def _postgres_advisory(_: Path) -> Iterator[str]:
    with postgres() as server:
        yield server.advisory_url


ENGINES = (
    Engine("local", _local, ttl=1.0, dropped_within=0.0),
    Engine("redis", _redis, ttl=1.0, dropped_within=0.0),
    Engine("postgres", _postgres, ttl=1.0, dropped_within=0.0),
    Engine("postgres-advisory", _postgres_advisory, ttl=1.0, dropped_within=0.0),
)
