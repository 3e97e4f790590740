"""An etcd of one member with its own folder and ports, on the loopback interface only."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from .processes import end, wait_until

_HOST = "127.0.0.1"
_REQUEST = 5.0


class EtcdServer:
    """Asked over HTTP, so that looking at a queue starts no process beside those that are measured."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"{_HOST}:{port}"

    def is_healthy(self) -> bool:
        try:
            return bool(self._ask("GET", "/health")["health"] == "true")
        except (OSError, http.client.HTTPException):
            return False

    def count(self, prefix: str) -> int:
        """Keys that begin with the prefix, which must not be empty."""
        first = prefix.encode()
        behind = first[:-1] + bytes([first[-1] + 1])
        between = {"key": base64.b64encode(first).decode(), "range_end": base64.b64encode(behind).decode()}
        return int(self._ask("POST", "/v3/kv/range", {**between, "count_only": True}).get("count", 0))

    def _ask(self, method: str, path: str, question: object = None) -> dict[str, Any]:
        with closing(http.client.HTTPConnection(self.endpoint, timeout=_REQUEST)) as connection:
            connection.request(method, path, json.dumps(question))
            answer: dict[str, Any] = json.load(connection.getresponse())
            return answer


@contextmanager
def etcd_server(folder: Path) -> Iterator[EtcdServer]:
    for_clients, for_peers = _free_ports()
    clients, peers = f"http://{_HOST}:{for_clients}", f"http://{_HOST}:{for_peers}"
    log = folder / "etcd.log"
    command = [
        *("setpriv", "--pdeathsig", "KILL"),  # nothing stays behind a benchmark that was killed
        *("etcd", "--name", "benchmark", "--data-dir", str(folder / "etcd")),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"benchmark={peers}"),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        server = EtcdServer(for_clients)

        def is_up() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"etcd ended with {process.returncode}:\n{log.read_text(errors='replace')}")
            return server.is_healthy()

        wait_until(is_up, "etcd is healthy")
        yield server
    finally:
        end(process, grace=10.0)


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for opened in (one, other):
            opened.bind((_HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]
