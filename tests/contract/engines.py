"""The engines under contract. A new one is one entry: where it runs, privately, and how short its TTLs may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from etcd_servers import EtcdCluster, EtcdMember
from postgres_servers import postgres
from redis_groups import cluster, independent, redlock_url, watched
from servers import RedisServer
from zookeeper_servers import ZooKeeperServer


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
def _sentinel(folder: Path) -> Iterator[str]:
    with watched(folder, sentinels=1, down_after=10.0) as group:
        yield group.url


@contextmanager
def _cluster(folder: Path) -> Iterator[str]:
    with cluster(folder) as group:
        yield group.url


@contextmanager
def _redlock(folder: Path) -> Iterator[str]:
    with independent(folder) as nodes:
        yield redlock_url(nodes)


@contextmanager
def _etcd(folder: Path) -> Iterator[str]:
    with EtcdMember(folder).running() as server:
        yield server.url


@contextmanager
def _postgres(_: Path) -> Iterator[str]:
    with postgres() as server:
        yield server.url


@contextmanager
def _etcd_cluster(folder: Path) -> Iterator[str]:
    with EtcdCluster.of(folder).running() as cluster:
        yield cluster.url


@contextmanager
def _zookeeper(folder: Path) -> Iterator[str]:
    with ZooKeeperServer(folder).running() as server:
        yield server.url


@contextmanager
def _postgres_advisory(_: Path) -> Iterator[str]:
    with postgres() as server:
        yield server.advisory_url


ENGINES = (
    Engine("local", _local, ttl=1.0, dropped_within=0.0),
    Engine("redis", _redis, ttl=1.0, dropped_within=0.0),
    Engine("redis+sentinel", _sentinel, ttl=1.0, dropped_within=0.0),
    Engine("redis+cluster", _cluster, ttl=1.0, dropped_within=0.0),
    Engine("redlock", _redlock, ttl=1.5, dropped_within=0.0),
    Engine("etcd", _etcd, ttl=2.0, dropped_within=4.5),
    Engine("etcd-cluster", _etcd_cluster, ttl=2.0, dropped_within=4.5),
    Engine("zookeeper", _zookeeper, ttl=2.0, dropped_within=5.0),
    Engine("postgres", _postgres, ttl=2.0, dropped_within=0.0),
    Engine("postgres-advisory", _postgres_advisory, ttl=2.0, dropped_within=0.0),
)
