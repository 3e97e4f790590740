"""A Redis with its own folder and port, on the loopback interface only."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from .processes import end, wait_until

_HOST = "127.0.0.1"


class RedisServer:
    def __init__(self, port: int) -> None:
        self.url = f"redis://{_HOST}:{port}"
        self.client = redis.Redis(_HOST, port)

    def is_up(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def clients(self, name: str) -> int:
        """Connections that call themselves so."""
        return sum(client["name"] == name for client in self.client.client_list())


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    with socket.socket() as opened:
        opened.bind((_HOST, 0))
        port: int = opened.getsockname()[1]
    command = [
        *("setpriv", "--pdeathsig", "KILL"),  # nothing stays behind a benchmark that was killed
        *("redis-server", "--bind", _HOST, "--port", str(port), "--dir", str(folder), "--save", ""),
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = RedisServer(port)
    try:
        wait_until(server.is_up, "redis answers")
        yield server
    finally:
        server.client.close()
        end(process, grace=10.0)
