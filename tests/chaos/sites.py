"""Where locks are kept in a campaign, and what can happen to it there: one entry an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from etcd_servers import EtcdCluster, EtcdMember
from postgres_servers import USER, PostgresServer, postgres
from redis_groups import independent
from servers import RedisServer
from zookeeper_servers import ZooKeeperServer


@dataclass(frozen=True)
class Server:
    """A real one, and how to hurt it."""

    port: int
    freeze: Callable[[], None]
    thaw: Callable[[], None]
    kill: Callable[[], None]
    start: Callable[[], None]
    """Again, with what it had on disk; does not wait until it answers."""


@dataclass(frozen=True)
class Site:
    servers: Sequence[Server]
    """Those that clients speak to. None of an embedded engine."""
    url: Callable[[Sequence[str]], str]
    """Of the engine, its servers being reached at these places: each worker has a network of its own."""


def _server(one: RedisServer | EtcdMember | ZooKeeperServer | PostgresServer) -> Server:
    return Server(one.port, one.freeze, one.thaw, one.kill, partial(one.start, ready=False))


@contextmanager
def _local(folder: Path) -> Iterator[Site]:
    yield Site((), lambda _: f"local://{folder / 'locks'}")


@contextmanager
def _redis(folder: Path) -> Iterator[Site]:
    """With every write on disk: README's table says what one that forgets can do."""
    with RedisServer(folder, keep=True).running() as server:
        yield Site([_server(server)], lambda places: f"redis://{places[0]}")


@contextmanager
def _redlock(folder: Path) -> Iterator[Site]:
    with independent(folder, keep=True) as servers:
        yield Site([*map(_server, servers)], lambda places: f"redlock://{','.join(places)}")


@contextmanager
def _etcd(folder: Path) -> Iterator[Site]:
    with EtcdMember(folder).running() as server:
        yield Site([_server(server)], lambda places: f"etcd://{places[0]}")


@contextmanager
def _etcd_cluster(folder: Path) -> Iterator[Site]:
    with EtcdCluster.of(folder).running() as group:
        yield Site([*map(_server, group.members)], lambda places: f"etcd://{','.join(places)}")


@contextmanager
def _zookeeper(folder: Path) -> Iterator[Site]:
    with ZooKeeperServer(folder).running() as server:
        yield Site([_server(server)], lambda places: f"zookeeper://{places[0]}")


@contextmanager
def _postgres(_: Path, scheme: str = "postgresql") -> Iterator[Site]:
    with postgres({"fsync": "on"}) as one:
        yield Site([_server(one)], lambda places: f"{scheme}://{USER}@{places[0]}/postgres")


SITES: dict[str, Callable[[Path], AbstractContextManager[Site]]] = {
    "local": _local,
    "redis": _redis,
    "redlock": _redlock,
    "etcd": _etcd,
    "etcd-cluster": _etcd_cluster,
    "zookeeper": _zookeeper,
    "postgresql": _postgres,
    "postgresql+advisory": partial(_postgres, scheme="postgresql+advisory"),
}
