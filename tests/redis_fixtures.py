"""A private redis-server for a test module, and what is asked of it besides the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from contenders import environment
from distlock.backends.redis import RedisBackend
from servers import RedisServer

OURS = ("token", "holder", "queue", "waiters", "marks", "revoked")


@contextmanager
def opened(url: str) -> Iterator[RedisBackend]:
    backend = RedisBackend.from_url(url, environment())
    try:
        yield backend
    finally:
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


def revoked_key(name: str) -> str:
    return f"distlock:{{lock:{name}}}:revoked"
