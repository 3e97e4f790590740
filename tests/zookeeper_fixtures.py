"""What the tests of the ZooKeeper engine share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kazoo.client import KazooClient

from contenders import environment
from distlock.backends.zookeeper import ZooKeeperBackend


@contextmanager
def opened(url: str, password: str | None = None) -> Iterator[ZooKeeperBackend]:
    backend = ZooKeeperBackend.from_url(url, environment(Path("/nonexistent"))._replace(password=password))
    try:
        yield backend
    finally:
        backend.close()


def folder(name: str) -> str:
    return f"/distlock/lock/{quote(name, safe='')}"


def queue(client: KazooClient, name: str) -> list[str]:
    """The nodes of a lock in order, as paths."""
    if not client.exists(folder(name)):
        return []
    return [f"{folder(name)}/{node}" for node in sorted(client.get_children(folder(name)), key=lambda node: node[-10:])]


def data(client: KazooClient, path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.get(path)[0])
    return found
