"""What is compared. A further tool, or another engine of distlock, is one more entry in ``peers``."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from distlock.backends import open_backend
from distlock.backends.base import Environment
from distlock.clock import boottime

from .etcd_server import EtcdServer
from .postgres_server import PostgresServer
from .redis_server import RedisServer
from .zookeeper_server import ZooKeeperServer

DISTLOCK = Path(sys.executable).with_name("distlock")
"""The command as it was installed beside this interpreter."""


class Peer(NamedTuple):
    name: str
    command: Callable[[str], list[str]]
    """The words before those of the child, for a lock of this name."""
    waiters: Callable[[str], int]
    """How many stand in the queue of this lock now; its holder does not."""
    ours: bool = False
    """Whether the targets are for it."""
    start_up_limit: float = 9.0
    yardstick: str = "etcdctl lock"
    """The peer that its hand-off is compared to,"""
    hand_off_limit: float = 1.5
    """and how many times that it may take."""


ETCDCTL = "etcdctl lock"
KAZOO = "kazoo Lock"
REDIS = "distlock, redis"


def peers(
    folder: Path,
    etcd: EtcdServer,
    redis: RedisServer,
    groups: Mapping[str, str],
    zookeeper: ZooKeeperServer,
    postgres: PostgresServer,
) -> list[Peer]:
    """``groups``: URLs of several Redis together, by the engine's name."""
    return [
        flock(folder),
        etcdctl(etcd),
        redis_py_lock(redis),
        distlock("local", f"local://{folder / 'locks'}", folder),
        distlock("redis", redis.url, folder)._replace(start_up_limit=17.0),
        *(
            distlock(engine, url, folder)._replace(start_up_limit=20.0, yardstick=REDIS)
            for engine, url in groups.items()
        ),
        distlock("etcd", f"etcd://{etcd.endpoint}", folder)._replace(start_up_limit=20.0, hand_off_limit=2.5),
        kazoo_lock(zookeeper),
        distlock("zookeeper", f"zookeeper://{zookeeper.place}", folder)._replace(
            start_up_limit=17.0, yardstick=KAZOO, hand_off_limit=1.2
        ),
        distlock("postgresql", postgres.url, folder)._replace(start_up_limit=20.0, hand_off_limit=3.0),
    ]


def flock(folder: Path) -> Peer:
    def waiters(name: str) -> int:
        return waiting_in(Path("/proc/locks").read_text(), (folder / name).stat().st_ino)

    return Peer("flock", lambda name: [program("flock"), str(folder / name)], waiters)


def waiting_in(locks: str, inode: int) -> int:
    """The processes that /proc/locks shows blocked behind the lock of a file: ``1: -> FLOCK … fe:00:INODE 0 EOF``."""
    return sum(fields[1] == "->" and fields[6].endswith(f":{inode}") for fields in map(str.split, locks.splitlines()))


def etcdctl(etcd: EtcdServer) -> Peer:
    # Behind -- all words are the child's. The holder has a key as the waiters have.
    return Peer(
        ETCDCTL,
        lambda name: [program("etcdctl"), f"--endpoints={etcd.endpoint}", "lock", name, "--"],
        lambda name: etcd.count(f"{name}/") - 1,
    )


def redis_py_lock(redis: RedisServer) -> Peer:
    """It has no queue: who does not get the lock asks again each 0.1 s. Waiting is who is connected and not the
    holder."""
    script = str(Path(__file__).with_name("redis_py_lock.py"))
    return Peer(
        "redis-py Lock",
        lambda name: [sys.executable, script, redis.url, name],
        lambda name: redis.clients(name) - 1,
    )


def kazoo_lock(zookeeper: ZooKeeperServer) -> Peer:
    script = str(Path(__file__).with_name("kazoo_lock.py"))
    return Peer(
        KAZOO,
        lambda name: [sys.executable, script, zookeeper.place, f"/benchmark/{name}"],
        lambda name: zookeeper.count(f"/benchmark/{name}") - 1,
    )


def distlock(engine: str, url: str, folder: Path) -> Peer:
    backend = open_backend(url, Environment(boottime, lambda: folder / "state"))
    return Peer(
        f"distlock, {engine}",
        lambda name: [str(DISTLOCK), "run", "-b", url, name, "--"],
        lambda name: len(backend.inspect(name, 5.0).waiters),
        ours=True,
    )


def program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not installed; `make deps` does that")
    return path


def environment(folder: Path) -> dict[str, str]:
    """This process's without what changes how the measured ones work: above all, they may read and write bytecode."""
    strange = ("PYTHON", "DISTLOCK_", "ETCD")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    return {**kept, "ETCDCTL_API": "3", "DISTLOCK_STATE_DIR": str(folder / "state")}
