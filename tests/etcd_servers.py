"""Real etcd for tests: one member or three, private, on free loopback ports, ended with the test that started them.
They are signalled by pid only."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree

from processes import wait_until
from servers import HOST, free_port

FAST = ("--heartbeat-interval", "50", "--election-timeout", "500")
"""The shortest TTL that a server grants is one and a half election time-outs, in whole seconds: one here."""


def etcdctl(endpoints: str, *words: str, environment: dict[str, str] | None = None, check: bool = True) -> str:
    done = subprocess.run(
        ["etcdctl", f"--endpoints={endpoints}", *words],
        env=dict(os.environ, ETCDCTL_API="3", **(environment or {})),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


@dataclass
class EtcdMember:
    """One etcd with its files in ``folder``."""

    folder: Path
    options: tuple[str, ...] = ()
    tls: bool = False
    name: str = "one"
    port: int = field(default_factory=free_port)
    peer_port: int = field(default_factory=free_port)
    metrics_port: int = field(default_factory=free_port)
    cluster: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'etcds' if self.tls else 'etcd'}://{self.place}"

    @property
    def peer_url(self) -> str:
        return f"http://{HOST}:{self.peer_port}"

    @property
    def metrics(self) -> str:
        """Where it tells how it is, without TLS and login."""
        return f"{HOST}:{self.metrics_port}"

    def start(self, *more: str, ready: bool = True) -> None:
        self.folder.mkdir(exist_ok=True, parents=True)
        clients = f"{'https' if self.tls else 'http'}://{self.place}"
        command = [
            *("setpriv", "--pdeathsig", "KILL"),  # nothing stays behind a test run that was killed
            *("etcd", "--name", self.name, "--data-dir", str(self.data)),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster", self.cluster or f"{self.name}={self.peer_url}"),
            *("--listen-metrics-urls", f"http://{self.metrics}"),
            *("--logger", "zap", "--log-level", "error"),
            *FAST,
            *self.options,
            *more,
        ]
        with (self.folder / "etcd.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if ready:
            wait_until(self.is_healthy, 30, "a healthy etcd")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def is_healthy(self) -> bool:
        """It has a leader."""
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "etcd.log").read_text()
        return self.tells("etcd_server_has_leader") == 1

    def is_leader(self) -> bool:
        return self.tells("etcd_server_is_leader") == 1

    def tells(self, figure: str) -> float:
        """One of its figures for Prometheus, -1 from one that does not answer."""
        try:
            with closing(http.client.HTTPConnection(self.metrics, timeout=1)) as connection:
                connection.request("GET", "/metrics")
                text = connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException):
            return -1
        return next((float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{figure} ")), -1)

    def ctl(self, *words: str, environment: dict[str, str] | None = None, check: bool = True) -> str:
        return etcdctl(self.place, *words, environment=environment, check=check)

    def keys(self, prefix: str = "/") -> list[str]:
        return [line for line in self.ctl("get", "--prefix", "--keys-only", prefix).splitlines() if line]

    def value(self, key: str) -> str:
        return self.ctl("get", "--print-value-only", key).removesuffix("\n")

    def leases(self) -> list[str]:
        """Ids of all that there are, in hex."""
        return [line for line in self.ctl("lease", "list").splitlines() if line and not line.startswith("found")]

    def clear(self) -> None:
        for lease in self.leases():
            self.ctl("lease", "revoke", lease, check=False)  # one may run out meanwhile
        self.ctl("del", "--prefix", "/")

    def lease_of(self, key: str) -> str:
        """In hex; of a key that may be one of a prefix."""
        found = json.loads(self.ctl("get", "--prefix", key, "--write-out=json"))["kvs"]
        return f"{int(found[0]['lease']):x}"

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

    def restart(self, *, keep: bool = True, ready: bool = True) -> None:
        self.kill()
        if not keep:
            rmtree(self.data)
        self.start(ready=ready)

    @contextmanager
    def running(self) -> Iterator[EtcdMember]:
        self.start()
        try:
            yield self
        finally:
            self.kill()


@dataclass
class EtcdCluster:
    """Three members."""

    members: Sequence[EtcdMember]

    @classmethod
    def of(cls, folder: Path) -> EtcdCluster:
        members = [EtcdMember(folder / name, name=name) for name in ("one", "two", "three")]
        peers = ",".join(f"{member.name}={member.peer_url}" for member in members)
        for member in members:
            member.cluster = peers
        return cls(members)

    @property
    def url(self) -> str:
        return "etcd://" + self.places

    @property
    def places(self) -> str:
        return ",".join(member.place for member in self.members)

    def leader(self) -> EtcdMember:
        def look() -> EtcdMember | None:
            leaders = [member for member in self.members if member.is_leader()]
            return leaders[0] if len(leaders) == 1 else None

        found = wait_until(look, 20, "a leader")
        assert found is not None
        return found

    def others(self, member: EtcdMember) -> list[EtcdMember]:
        return [one for one in self.members if one is not member]

    @contextmanager
    def running(self) -> Iterator[EtcdCluster]:
        with ExitStack() as stack:
            for member in self.members:
                stack.callback(member.kill)
                member.start(ready=False)
            for member in self.members:
                wait_until(member.is_healthy, 30, f"a cluster, seen by {member.name}")
            yield self
