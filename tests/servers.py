"""Real servers for tests: private ones, on the loopback interface or a unix socket, ended with the test that started
them. They are signalled by pid only."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from processes import wait_until

HOST = "127.0.0.1"


def free_port() -> int:
    """Free a moment ago; whoever is told it has to be ready for the contrary."""
    with closing(socket.socket()) as one:
        one.bind((HOST, 0))
        port: int = one.getsockname()[1]
        return port


def unread(port: int) -> bool:
    """Whether something was sent to a server at this port that it has not read."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    return any(row[3] == "01" and row[1].endswith(f":{port:04X}") and not row[4].endswith(":00000000") for row in rows)


@dataclass
class RedisServer:
    """One redis-server with its files in ``folder``. Without ``keep`` it forgets everything when it ends."""

    folder: Path
    options: tuple[str, ...] = ()
    keep: bool = False
    tls: tuple[str, ...] = ()
    """Options of TLS. The port speaks nothing else then."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def socket(self) -> Path:
        return self.folder / "redis.sock"

    @property
    def place(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'rediss' if self.tls else 'redis'}://{self.place}"

    @property
    def unix_url(self) -> str:
        return f"redis+unix://{self.socket}"

    def start(self, *more: str, ready: bool = True) -> None:
        self.folder.mkdir(exist_ok=True)
        listen = ["--port", "0", "--tls-port", str(self.port), *self.tls] if self.tls else ["--port", str(self.port)]
        command = [
            *("setpriv", "--pdeathsig", "KILL"),  # nothing stays behind a test run that was killed
            *("redis-server", "--dir", str(self.folder), "--bind", HOST, *listen),
            *("--unixsocket", str(self.socket), "--unixsocketperm", "700", "--daemonize", "no", "--hz", "50"),
            *("--save", "", "--appendonly", "yes" if self.keep else "no", "--appendfsync", "always"),
            *(
                "--enable-debug-command",
                "yes",
                "--enable-protected-configs",
                "yes",
                "--loglevel",
                "warning",
                *self.options,
                *more,
            ),
        ]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if ready:
            wait_until(self.answers, 20, "an answer of redis-server")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "redis.log").read_text()
        try:
            return bool(self.command("PING"))
        except (redis.AuthenticationError, redis.ResponseError):
            return True  # wants a password, or is a replica: it is there
        except redis.ConnectionError:
            return False

    def client(self) -> redis.Redis:
        """By the unix socket, which needs no TLS; without retries."""
        return redis.Redis(unix_socket_path=str(self.socket), socket_timeout=10, retry=Retry(NoBackoff(), 0))

    def command(self, *words: str | int | bytes) -> Any:
        with closing(self.client()) as client:
            ask: Any = client.execute_command
            return ask(*words)

    def statistics(self) -> dict[str, int]:
        """Calls by command, those of scripts too."""
        with closing(self.client()) as client:
            return {name: int(value["calls"]) for name, value in client.info("commandstats").items()}

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        os.kill(self.process.pid, number)

    def freeze(self) -> None:
        assert self.process is not None
        self.signal(signal.SIGSTOP)
        status = Path(f"/proc/{self.process.pid}/status")
        wait_until(lambda: "State:\tT" in status.read_text())

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()

    def restart(self, *more: str, ready: bool = True) -> None:
        self.kill()
        self.start(*more, ready=ready)

    @contextmanager
    def running(self) -> Iterator[RedisServer]:
        self.start()
        try:
            yield self
        finally:
            self.kill()
