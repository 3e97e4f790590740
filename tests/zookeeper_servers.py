"""Real ZooKeeper servers from Debian's jars: private ones on the loopback interface, ended with the test that started
them, alone or as an ensemble."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kazoo.client import KazooClient

from processes import wait_until
from servers import HOST, free_port

_JARS = ":".join(
    f"/usr/share/java/{name}.jar"
    # The first names most of what it needs; Netty, which is for TLS, needs three more than Debian says.
    for name in (
        *("zookeeper", "slf4j-log4j12", "log4j-1.2"),
        *("netty-codec", "netty-resolver", "netty-transport-native-unix-common"),
    )
)
_LOG = """
log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d %p %c{1} %m%n
"""
_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


@dataclass
class ZooKeeperServer:
    """One server with its files in ``folder``; it keeps them when it is restarted. Sessions from 0.4 to 60 s."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    """Lines of its configuration."""
    tick: int = 200
    secure: bool = False
    """TLS on the port, and nothing else."""
    number: int = 0
    """In an ensemble; then ``settings`` name all of it."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def place(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'zookeepers' if self.secure else 'zookeeper'}://{self.place}"

    def start(self, *, ready: bool = True) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        if self.number:
            (data / "myid").write_text(str(self.number))
        kind = "secureClientPort" if self.secure else "clientPort"
        settings = {
            "tickTime": str(self.tick),
            "maxSessionTimeout": "60000",
            "dataDir": str(data),
            kind: str(self.port),
            f"{kind}Address": HOST,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "maxClientCnxns": "0",
            **self.settings,
        }
        configuration = self.folder / "zoo.cfg"
        configuration.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        (self.folder / "log4j.properties").write_text(_LOG)
        command = [
            *("setpriv", "--pdeathsig", "KILL"),  # nothing stays behind a test run that was killed
            *("java", *_JVM, "-cp", f"{self.folder}:{_JARS}"),
            *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)),
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if ready:
            self.wait()

    def wait(self) -> None:
        wait_until(self.is_ready, 30, "a ZooKeeper that serves")

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        if self.secure:
            try:
                socket.create_connection((HOST, self.port), 1.0).close()
            except OSError:
                return False
            return True
        return "Mode: " in self.word("srvr")

    def word(self, word: str) -> str:
        """What it says to one of the four-letter words; nothing if it does not answer."""
        try:
            with closing(socket.create_connection((HOST, self.port), 1.0)) as one:
                one.sendall(word.encode())
                answer = b""
                while more := one.recv(65536):
                    answer += more
                return answer.decode()
        except OSError:
            return ""

    @property
    def mode(self) -> str:
        """leader, follower or standalone; nothing while it has no ensemble."""
        return self.word("srvr").partition("Mode: ")[2].partition("\n")[0]

    def sessions(self) -> set[int]:
        """Those it knows, by number."""
        lines = (line.strip() for line in self.word("dump").partition("ephemeral")[0].splitlines())
        return {int(line, 16) for line in lines if line.startswith("0x")}

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

    def restart(self) -> None:
        self.kill()
        self.start()

    @contextmanager
    def running(self) -> Iterator[ZooKeeperServer]:
        self.start()
        try:
            yield self
        finally:
            self.kill()


@contextmanager
def ensemble(folder: Path, count: int = 3) -> Iterator[list[ZooKeeperServer]]:
    numbers = range(1, count + 1)
    members = {f"server.{number}": f"{HOST}:{free_port()}:{free_port()}" for number in numbers}
    settings = {**members, "initLimit": "20", "syncLimit": "10"}
    servers = [ZooKeeperServer(folder / f"{number}", settings, number=number) for number in numbers]
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.start(ready=False)
        for server in servers:
            server.wait()
        yield servers


def url_of(servers: Sequence[ZooKeeperServer]) -> str:
    return f"zookeeper://{','.join(server.place for server in servers)}"


@contextmanager
def kazoo(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """kazoo's own client."""
    client = KazooClient(server.place, timeout=5.0)
    client.start(10)
    try:
        yield client
    finally:
        client.stop()
        client.close()
