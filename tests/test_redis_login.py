"""Who may: the smallest ACL that will do, as documented, and TLS that is verified."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from certificates import authority, certificate
from contenders import acquire, request, take, try_once
from distlock.backends.base import Backend, ConfigurationError, Mark, Refused, Unavailable
from redis_fixtures import opened, opened_all
from redis_groups import SERVICE, cluster, independent, redlock_url, watched
from servers import RedisServer

DOCUMENTATION = (Path(__file__).parent.parent / "docs/redis.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("redis")


# -- access control ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RedisServer]:
    with RedisServer(folder / "plain").running() as one:
        yield one


def documented_acl() -> list[str]:
    (line,) = re.findall(r"^ACL SETUSER .*$", DOCUMENTATION, re.MULTILINE)
    words = shlex.split(line)
    assert words[2:5] == ["distlock", "on", ">PASSWORD"]
    return words


def everything(url: str, name: str) -> None:
    """All that distlock asks of a server."""
    with opened(url) as backend, opened(url) as other:
        assert not backend.inspect(name, 5.0).held
        grant = take(backend, name)
        with other.enqueue(request(name, 30.0)) as waiting:
            assert waiting.poll() is None
            with other.enqueue(request(name, 30.0)) as leaving:
                assert leaving.poll() is None
            assert len(backend.inspect(name, 5.0).waiters) == 1
            assert try_once(backend, name) is None
            backend.mark(grant, Mark("x", 0.0, 0.001), 5.0)
            backend.release(backend.renew(grant, 5.0), 5.0)
            grant = acquire(waiting)
            assert other.revoke(name, grant.token, None, "me", 5.0, now=False)
            other.release(grant, 5.0, (Mark("y", 0.0, 60.0),), 0.1)
            assert other.marked(name, "y", 5.0)
        many_holders(backend, f"{name} many")
        assert name in [state.name for state in backend.locks(5.0)]


def many_holders(backend: Backend, name: str) -> None:
    first, second = (take(backend, name, holders=2) for _ in range(2))
    assert backend.revoke(name, first.token, None if first.token else first.owner, "me", 5.0, now=True)
    backend.release(backend.renew(second, 5.0), 5.0)
    assert list(backend.purge(lambda found: found == name, 0.0, 5.0)) == [name]


def test_the_documented_acl_is_enough(server: RedisServer) -> None:
    server.command(*documented_acl())
    everything(f"redis://distlock:PASSWORD@{server.place}", "n")
    server.command("SCRIPT", "FLUSH")
    everything(f"redis://distlock:PASSWORD@{server.place}", "p q/ж")


def test_nothing_of_the_documented_acl_can_be_left_out(server: RedisServer) -> None:
    words = documented_acl()
    for rule in [word for word in words[5:] if word[0] in "+~&"]:
        server.command("ACL", "DELUSER", "distlock")
        server.command(*(word for word in words if word != rule))
        server.command("SCRIPT", "FLUSH")
        with pytest.raises(Refused, match=f"^{server.place} does not allow it: "):
            everything(f"redis://distlock:PASSWORD@{server.place}/1", f"without {rule[1:].strip('{}*')}")


def test_the_documented_acl_lets_nobody_do_more(server: RedisServer) -> None:
    server.command(*documented_acl())
    server.command("SET", "customer:1", "x")
    with closing(redis.Redis(unix_socket_path=str(server.socket), username="distlock", password="PASSWORD")) as user:
        for call in (
            lambda: user.get("customer:1"),
            lambda: user.set("customer:1", "y"),
            lambda: user.eval("return redis.call('GET', 'customer:1')", 0),
            user.flushall,
            lambda: user.keys("*"),
            lambda: user.config_get("*"),
            lambda: user.publish("chat", "x"),
        ):
            with pytest.raises(redis.RedisError):
                call()


def test_a_channel_that_is_not_allowed_leaves_no_lock_behind(server: RedisServer) -> None:
    """The subscription fails, and the script that was sent with it has got the lock."""
    server.command("ACL", "SETUSER", "mute", "on", ">pw", "~*", "resetchannels", "+@all")
    with opened(f"redis://mute:pw@{server.place}") as backend, pytest.raises(Refused, match="does not allow it"):
        try_once(backend, "mute")
    assert server.command("EXISTS", "lock:mute") == 0


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ca(folder: Path) -> Path:
    return authority(folder / "ca")


def tls_server(folder: Path, ca: Path, name: str, *alternatives: str, clients: str = "no") -> RedisServer:
    pem, key = certificate(ca, name, *alternatives)
    files = ("--tls-cert-file", str(pem), "--tls-key-file", str(key), "--tls-ca-cert-file", str(ca))
    return RedisServer(folder / name, tls=(*files, "--tls-auth-clients", clients))


@pytest.fixture(scope="module")
def secure(folder: Path, ca: Path) -> Iterator[RedisServer]:
    with tls_server(folder, ca, "good", "IP:127.0.0.1", "DNS:localhost").running() as one:
        yield one


def test_tls(secure: RedisServer, ca: Path) -> None:
    everything(f"{secure.url}?ca={ca}", "n")
    everything(f"rediss://localhost:{secure.port}/2?ca={ca}", "n")


def test_a_wake_up_over_tls_is_not_left_in_the_buffer(secure: RedisServer, ca: Path) -> None:
    with opened(f"{secure.url}?ca={ca}") as backend, opened(f"{secure.url}?ca={ca}") as other:
        held = take(backend, "buffer")
        with other.enqueue(request("buffer", 30.0)) as ticket:
            assert ticket.poll() is None
            backend.release(held, 5.0)
            assert acquire(ticket, 0.5)


def test_a_certificate_nobody_vouches_for(secure: RedisServer, folder: Path) -> None:
    another = authority(folder / "another")
    for url in (secure.url, f"{secure.url}?ca={another}"):
        with opened(url) as backend, pytest.raises(Refused, match="certificate that does not pass: self-signed"):
            try_once(backend, "n")


def test_a_certificate_of_another_host(folder: Path, ca: Path) -> None:
    server = tls_server(folder, ca, "elsewhere", "DNS:elsewhere.example")
    with server.running(), opened(f"{server.url}?ca={ca}") as backend, pytest.raises(Refused, match="IP address mism"):
        try_once(backend, "n")


def test_client_certificates(folder: Path, ca: Path) -> None:
    with tls_server(folder, ca, "strict", "IP:127.0.0.1", clients="yes").running() as server:
        pem, key = certificate(ca, "client")
        everything(f"{server.url}?ca={ca}&cert={pem}&key={key}", "n")
        with opened(f"{server.url}?ca={ca}") as backend, pytest.raises(Refused, match="wants one"):
            try_once(backend, "n")
        wrong = f"{server.url}?ca={ca}&cert={ca}&key={key}"
        with opened(wrong) as backend, pytest.raises(ConfigurationError, match="no usable PEM file"):
            try_once(backend, "n")


def test_a_file_that_is_no_certificate(secure: RedisServer, tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    wrong = f"{secure.url}?ca={tmp_path}/ca"
    with opened(wrong) as backend, pytest.raises(ConfigurationError, match="no usable PEM file"):
        try_once(backend, "n")


def test_tls_to_a_plain_port_and_plain_to_a_tls_port(server: RedisServer, secure: RedisServer, ca: Path) -> None:
    """The one waits for the rest of a line, the other hangs up."""
    tls_to_plain = f"rediss://{server.place}?ca={ca}"
    with opened(tls_to_plain) as backend, pytest.raises(Unavailable, match="does not answer"):
        backend.inspect("n", 0.5)
    hangs_up = r"closed the connection|reset by peer"
    with opened(f"redis://{secure.place}") as backend, pytest.raises(Unavailable, match=hangs_up):
        try_once(backend, "n")


# -- several servers ---------------------------------------------------------------------------------------------------


def several(url: str, name: str) -> None:
    with opened_all(url, 2) as (backend, other):
        grant = take(backend, name)
        with other.enqueue(request(name, 30.0)) as waiting:
            assert waiting.poll() is None
            backend.mark(grant, Mark("x", 0.0, 0.001), 5.0)
            backend.release(backend.renew(grant, 5.0), 5.0)
            grant = acquire(waiting)
            owner = grant.owner if grant.token is None else None
            assert other.revoke(name, grant.token, owner, "me", 5.0, now=False)
            other.release(grant, 5.0, (Mark("y", 0.0, 60.0),), 0.1)
            assert other.marked(name, "y", 5.0)
        many_holders(backend, f"{name} many")
        assert name in [state.name for state in backend.locks(5.0)]


def test_the_documented_acl_behind_sentinels(tmp_path: Path) -> None:
    assert "`+role` besides" in DOCUMENTATION
    assert "`+sentinel|get-master-addr-by-name`" in DOCUMENTATION
    with watched(tmp_path / "group", sentinels=1) as group:
        for server in group.servers:
            server.command(*documented_acl(), "+role")
        watcher = ("distlock", "on", ">OTHER", "-@all", "+sentinel|get-master-addr-by-name")
        group.sentinels[0].command("ACL", "SETUSER", *watcher)
        url = f"redis+sentinel://distlock:PASSWORD@{group.places}/{SERVICE}"
        several(f"{url}?sentinel_user=distlock&sentinel_password=OTHER", "n")
        for server in group.servers:
            server.command("ACL", "SETUSER", "distlock", "-role")
        with pytest.raises(Refused, match="does not allow it"):
            several(url, "m")


def test_the_documented_acl_in_a_cluster(tmp_path: Path) -> None:
    assert "`+cluster|slots +asking`" in DOCUMENTATION
    with cluster(tmp_path / "group") as group:
        for node in group.nodes:
            node.command(*documented_acl(), "+cluster|slots", "+asking")
        url = group.url.replace("://", "://distlock:PASSWORD@")
        for name in ("a", "b", "c", "d"):
            several(url, name)
        for node in group.nodes:
            node.command("ACL", "SETUSER", "distlock", "-cluster|slots")
        with pytest.raises(Refused, match="does not allow it"):
            several(url, "e")


def test_the_documented_acl_for_redlock(tmp_path: Path) -> None:
    with independent(tmp_path / "nodes") as nodes:
        for node in nodes:
            node.command(*documented_acl())
        several(redlock_url(nodes).replace("://", "://distlock:PASSWORD@"), "n")
