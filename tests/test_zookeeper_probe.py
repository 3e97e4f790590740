"""What the ZooKeeper engine finds at servers that are not fit to keep locks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.security import make_digest_acl, make_digest_acl_credential

from distlock.backends.base import Refused, Unavailable
from distlock.backends.probe import Probe
from processes import wait_until
from servers import HOST, free_port
from zookeeper_fixtures import opened
from zookeeper_servers import ZooKeeperServer, ensemble, kazoo, url_of


def probed(url: str) -> Probe:
    with opened(url) as backend:
        return backend.probe(5.0)


def evidence(probe: Probe) -> set[str]:
    return {finding.evidence for finding in probe.findings}


def test_one_server_alone_with_usual_limits(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path).running() as server, kazoo(server) as zk:
        sessions = server.sessions()
        found = probed(server.url)
        assert found.server.startswith("ZooKeeper 3.")
        assert found.server.endswith(", standalone")
        assert (found.shortest_ttl, found.longest_ttl) == (0.4, 60.0)
        assert found.clock_offset is not None
        assert evidence(found) == {"standalone"}
        assert server.sessions() == sessions
        assert zk.get_children("/") == ["zookeeper"], "nothing is made for it"


def test_limits_that_are_too_narrow(tmp_path: Path) -> None:
    settings = {"minSessionTimeout": "12000", "maxSessionTimeout": "20000"}
    with ZooKeeperServer(tmp_path, settings).running() as server:
        found = probed(server.url)
        assert (found.shortest_ttl, found.longest_ttl) == (12.0, 20.0)
        assert evidence(found) == {"standalone", "minSessionTimeout=12000", "maxSessionTimeout=20000"}
        for finding in found.findings[1:]:
            assert "TTL".lower() in finding.meaning


@contextmanager
def without_words(port: int) -> Iterator[int]:
    """The port of a gateway that hangs up on four-letter words."""
    listener = socket.create_server((HOST, 0))
    open_ones = [listener]

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while more := source.recv(65536):
                target.sendall(more)
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                one, _ = listener.accept()
                open_ones.append(one)
                if one.recv(4, socket.MSG_PEEK) == b"srvr":
                    one.shutdown(socket.SHUT_RDWR)
                    continue
                other = socket.create_connection((HOST, port))
                open_ones.append(other)
                for pair in ((one, other), (other, one)):
                    threading.Thread(target=pass_on, args=pair, daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for one in open_ones:
            one.close()


def test_what_may_not_be_looked_at_is_a_finding(tmp_path: Path) -> None:
    """Servers themselves always answer ``srvr``; what is before them may not let it pass."""
    admin = "super", "x"
    digest = make_digest_acl_credential(*admin)
    server = ZooKeeperServer(tmp_path, {"DigestAuthenticationProvider.superDigest": digest})
    with server.running(), kazoo(server) as zk, without_words(server.port) as port:
        silent = f"{HOST}:{port} does not answer srvr"
        found = probed(f"zookeeper://{HOST}:{port}")
        assert found.server == "ZooKeeper of unknown version"
        assert evidence(found) == {silent, "standalone"}
        zk.add_auth("digest", ":".join(admin))
        zk.set_acls("/zookeeper/config", [make_digest_acl("root", "x", all=True)])
        assert evidence(probed(f"zookeeper://{HOST}:{port}")) == {silent, "/zookeeper/config may not be read"}


def test_nobody_there() -> None:
    with pytest.raises(Unavailable, match="is not reached"):
        probed(f"zookeeper://{HOST}:{free_port()}")


def test_an_ensemble_whole_and_in_part(tmp_path: Path) -> None:
    with ensemble(tmp_path) as servers:
        whole = probed(url_of(servers))
        assert whole.findings == ()
        assert whole.server.endswith(", 2 follower, 1 leader") or whole.server.endswith(", 1 leader, 2 follower")
        assert evidence(probed(servers[0].url)) == {"the URL leads to 1 of 3 servers"}
        first, second = (server for server in servers if server.mode == "follower")
        first.freeze()
        assert evidence(probed(url_of(servers))) == {f"{first.place} does not answer"}
        first.thaw()
        wait_until(first.is_ready)
        second.kill()
        assert evidence(probed(url_of(servers))) == {f"{second.place} is not reached: Connection refused"}


def test_an_ensemble_of_two(tmp_path: Path) -> None:
    with ensemble(tmp_path, 2) as servers:
        assert evidence(probed(url_of(servers))) == {"2 participants in /zookeeper/config"}


def test_the_clock_of_who_may_make_nothing(tmp_path: Path) -> None:
    with ZooKeeperServer(tmp_path).running() as server, kazoo(server) as zk:
        zk.add_auth("digest", "root:x")
        zk.set_acls("/", [make_digest_acl("root", "x", all=True)])
        assert probed(server.url).clock_offset is None
        with opened(server.url) as backend, pytest.raises(Refused):
            backend.inspect("p", 5.0)
