"""What a later release may have stored: this one says that it does not know it (69). It is never a free lock."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import pytest

import etcd_fixtures
import redis_fixtures
import zookeeper_fixtures
from distlock.backends import SCHEMES
from etcd_servers import EtcdMember
from postgres_servers import PostgresServer, postgres
from processes import DISTLOCK, Lab
from redis_groups import cluster, watched
from servers import RedisServer
from zookeeper_servers import ZooKeeperServer, kazoo

JOB = "job"
Served = tuple[str, Callable[[], object]]
"""A URL, and what makes the record of JOB, which has been used once, one of a later layout."""


@contextmanager
def _local(folder: Path) -> Iterator[Served]:
    def spoil() -> None:
        (path,) = (folder / "locks").glob("*.lock/lock.db")
        with closing(sqlite3.connect(path)) as sql:
            sql.execute("PRAGMA user_version = 99")

    yield f"local://{folder / 'locks'}", spoil


def _spoil_redis(server: RedisServer) -> object:
    return server.command("SET", redis_fixtures.token_key(JOB), "99:17")


@contextmanager
def _redis(folder: Path) -> Iterator[Served]:
    with RedisServer(folder).running() as server:
        yield server.url, lambda: _spoil_redis(server)


@contextmanager
def _sentinel(folder: Path) -> Iterator[Served]:
    with watched(folder, replicas=0, sentinels=1, down_after=10.0) as group:
        yield group.url, lambda: _spoil_redis(group.master())


@contextmanager
def _cluster(folder: Path) -> Iterator[Served]:
    with cluster(folder) as group:
        yield group.url, lambda: _spoil_redis(group.of(JOB))


@contextmanager
def _etcd(folder: Path) -> Iterator[Served]:
    with EtcdMember(folder).running() as server:
        yield server.url, lambda: server.ctl("put", etcd_fixtures.record_of(JOB), "99:77")


@contextmanager
def _zookeeper(folder: Path) -> Iterator[Served]:
    with ZooKeeperServer(folder).running() as server, kazoo(server) as client:
        yield server.url, lambda: client.set(zookeeper_fixtures.folder(JOB), b'{"version":99,"token":5}')


def _spoil_postgres(server: PostgresServer) -> object:
    return server.sql("UPDATE distlock_layout SET version = 99")


@contextmanager
def _postgres(_: Path) -> Iterator[Served]:
    with postgres() as server:
        yield server.url, lambda: _spoil_postgres(server)


@contextmanager
def _advisory(_: Path) -> Iterator[Served]:
    with postgres() as server:
        yield server.advisory_url, lambda: _spoil_postgres(server)


ENGINES: dict[str, Callable[[Path], AbstractContextManager[Served]]] = {
    "local": _local,
    "redis": _redis,
    "redis+sentinel": _sentinel,
    "redis+cluster": _cluster,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
    "postgresql": _postgres,
    "postgresql+advisory": _advisory,
}
WITHOUT_RECORDS = "redlock"
"""Its locks are as any client's of Redlock: the owner id, and nothing else."""


def test_every_engine_is_among_them() -> None:
    assert {SCHEMES[scheme] for scheme in (*ENGINES, WITHOUT_RECORDS)} == set(SCHEMES.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_later_layout_is_69_and_never_free(engine: str, tmp_path: Path) -> None:
    with ENGINES[engine](tmp_path / "engine") as (url, spoil):
        lab = Lab(tmp_path, url)

        def ask(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [DISTLOCK, *words], env=lab.environment, capture_output=True, text=True, timeout=20, check=False
            )

        assert ask("run", JOB, "--", "true").returncode == 0
        assert json.loads(ask("inspect", "--json", JOB).stdout)["state"] == "free"
        spoil()
        mark = tmp_path / "started"
        for words in (
            ["run", "-n", JOB, "--", "touch", str(mark)],
            ["run", "--fail-open", "-n", JOB, "--", "touch", str(mark)],
            ["run", JOB, "--", "touch", str(mark)],
            ["status", "--all"],
            ["inspect", JOB],
            ["purge", "--yes", "--unused-for", "0"],
            ["inspect", "-q", JOB],
        ):
            done = ask(*words)
            if words[0] == "purge":  # says so, or passes it over; it is there afterwards in any case
                assert done.returncode in (0, 69)
                continue
            told = f"{words}: {done.returncode} {done.stdout!r} {done.stderr!r}"
            assert done.returncode == 69, told
            assert "layout" in done.stderr, told
            assert done.stderr.count("\n") == 1, told
            assert not mark.exists(), told
