"""A ZooKeeper from Debian's jars with its own folder and port, on the loopback interface only."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kazoo.client import KazooClient

from .processes import end, wait_until

_HOST = "127.0.0.1"
_CONFIGURATION = """
tickTime=2000
dataDir={folder}/zookeeper
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
"""


class ZooKeeperServer:
    def __init__(self, port: int) -> None:
        self.place = f"{_HOST}:{port}"
        self._port = port
        self.client = KazooClient(self.place)

    def is_up(self) -> bool:
        try:
            with closing(socket.create_connection((_HOST, self._port), 1.0)) as one:
                one.sendall(b"srvr")
                return b"Mode: " in one.recv(4096)
        except OSError:
            return False

    def count(self, path: str) -> int:
        """Nodes below a path; the path itself may not be there yet."""
        return len(self.client.get_children(path)) if self.client.exists(path) else 0


@contextmanager
def zookeeper_server(folder: Path) -> Iterator[ZooKeeperServer]:
    with socket.socket() as opened:
        opened.bind((_HOST, 0))
        port: int = opened.getsockname()[1]
    (folder / "zookeeper").mkdir()
    configuration = folder / "zookeeper" / "zoo.cfg"
    configuration.write_text(_CONFIGURATION.format(folder=folder, port=port))
    command = [
        *("setpriv", "--pdeathsig", "KILL"),  # nothing stays behind a benchmark that was killed
        *("java", "-Xmx256m", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-nop.jar"),
        *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(configuration)),
    ]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = ZooKeeperServer(port)
    try:
        wait_until(server.is_up, "ZooKeeper serves")
        server.client.start(10)
        yield server
    finally:
        server.client.stop()
        server.client.close()
        end(process, grace=10.0)
