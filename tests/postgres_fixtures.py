"""What tests of the PostgreSQL engines share besides the contract.

A module takes the fixtures that it wants by assignment, as of redis_fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from contenders import environment
from distlock.backends.postgres import PostgresBackend
from distlock.backends.postgres_advisory import AdvisoryBackend
from postgres_servers import PostgresServer, postgres


@pytest.fixture(scope="module")
def one_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="module")
def one_server_with_a_role() -> Iterator[PostgresServer]:
    with postgres() as server:
        server.role("job")
        yield server


@pytest.fixture
def emptied_server(one_server: PostgresServer) -> PostgresServer:
    one_server.forget()
    return one_server


@contextmanager
def opened(url: str) -> Iterator[PostgresBackend]:
    kind = AdvisoryBackend if "+advisory" in url else PostgresBackend
    backend = kind.from_url(url, environment())
    try:
        yield backend
    finally:
        backend.close()


def waiters(server: PostgresServer, name: str = "job") -> int:
    """Rows, of the living and the dead."""
    if server.sql("SELECT to_regclass('public.distlock_waiter')") == [None]:
        return 0
    (count,) = server.sql("SELECT count(*) FROM distlock_waiter WHERE name = %s", name.encode())
    return int(count)


def owner(server: PostgresServer, name: str = "job") -> str | None:
    if server.sql("SELECT to_regclass('public.distlock_lock')") == [None]:
        return None
    return next(iter(server.sql("SELECT owner FROM distlock_lock WHERE name = %s", name.encode())), None)


def hold(server: PostgresServer, name: str = "job", seconds: float = 60.0) -> None:
    """Somebody, who never comes back."""
    with opened(server.url) as backend:
        backend.prepare(5.0)
    server.sql(
        "INSERT INTO distlock_lock (name, token, owner, ttl, expires_at)"
        " VALUES (%s, 7, 'x', 60, now() + %s * interval '1 s')"
        " ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at",
        name.encode(),
        seconds,
    )


def left_behind(server: PostgresServer) -> dict[str, object]:
    """Everything of ours in the database but locks that are free."""
    return {
        "waiters": server.sql("SELECT convert_from(name, 'UTF8') FROM distlock_waiter"),
        "held": server.sql("SELECT convert_from(name, 'UTF8') FROM distlock_lock WHERE owner IS NOT NULL"),
        "advisory": server.sql("SELECT objid FROM pg_locks WHERE locktype = 'advisory'"),
    }


NOTHING: dict[str, object] = {"waiters": [], "held": [], "advisory": []}
