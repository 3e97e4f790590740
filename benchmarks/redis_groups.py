"""Several Redis together: one behind a sentinel, a cluster, independent ones. All on the loopback interface."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis

from .processes import end, wait_until

_HOST = "127.0.0.1"
_SLOTS = 16384


@contextmanager
def sentinel(folder: Path) -> Iterator[str]:
    """The URL of a master that a sentinel watches."""
    with ExitStack() as stack:
        (server,) = stack.enter_context(_servers(folder / "watched", 1))
        port = _free_port()
        file = folder / "sentinel.conf"
        file.write_text(f"port {port}\nbind {_HOST}\ndir {folder}\nsentinel monitor mymaster {_HOST} {server} 1\n")
        stack.enter_context(_running(["redis-sentinel", str(file)], port))
        yield f"redis+sentinel://{_HOST}:{port}/mymaster"


@contextmanager
def cluster(folder: Path, masters: int = 3) -> Iterator[str]:
    """The URL of a cluster."""
    with _servers(folder / "cluster", masters, "--cluster-enabled", "yes") as ports:
        clients = [redis.Redis(_HOST, port) for port in ports]
        for number, client in enumerate(clients):
            first, behind = (_SLOTS * part // masters for part in (number, number + 1))
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, behind - 1)
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER", "MEET", _HOST, ports[0], _bus(ports[0]))
        for client in clients:
            wait_until(lambda: client.cluster("INFO")["cluster_state"] == "ok", "the cluster is up")  # noqa: B023
            client.close()
        yield "redis+cluster://" + ",".join(f"{_HOST}:{port}" for port in ports)


@contextmanager
def redlock(folder: Path) -> Iterator[str]:
    """The URL of three independent servers."""
    with _servers(folder / "redlock", 3) as ports:
        yield "redlock://" + ",".join(f"{_HOST}:{port}" for port in ports)


def _bus(port: int) -> int:
    """A port for a cluster's nodes among themselves: their own default may be above the last one."""
    return port + 10000 if port < 50000 else port - 10000


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind((_HOST, 0))
        port: int = opened.getsockname()[1]
        return port


@contextmanager
def _servers(folder: Path, count: int, *options: str) -> Iterator[Sequence[int]]:
    ports = [_free_port() for _ in range(count)]
    with ExitStack() as stack:
        for port in ports:
            place = folder / str(port)
            place.mkdir(parents=True)
            words = [*options, *(("--cluster-port", str(_bus(port))) if options else ())]
            command = ["redis-server", "--bind", _HOST, "--port", str(port), "--dir", str(place), "--save", "", *words]
            stack.enter_context(_running(command, port))
        yield ports


@contextmanager
def _running(command: Sequence[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *command],  # nothing stays behind a benchmark that was killed
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client = redis.Redis(_HOST, port)

    def is_up() -> bool:
        try:
            return bool(client.ping())
        except redis.ConnectionError:
            return False

    try:
        wait_until(is_up, f"{command[0]} answers")
        yield
    finally:
        client.close()
        end(process, grace=10.0)
