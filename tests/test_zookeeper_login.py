"""Logins by user and password, and TLS: who gets in, who is refused, and what is never shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

import zookeeper_fixtures
from certificates import authority, certificate
from contenders import acquire, request, take, try_once
from distlock.backends.base import ConfigurationError, DistlockError, Mark, Refused, Unavailable
from processes import Lab
from zookeeper_fixtures import folder, opened
from zookeeper_servers import ZooKeeperServer, kazoo

SECRET = "s3cret/ж"
LOGIN = "sam:s3cret%2F%D0%B6"


server = zookeeper_fixtures.server
zk = zookeeper_fixtures.zk


@pytest.fixture(scope="module")
def root(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """An administrator, and the user as well."""
    with kazoo(server) as one:
        one.add_auth("digest", "root:x")
        one.add_auth("digest", f"sam:{SECRET}")
        yield one


def logged_in(server: ZooKeeperServer, chroot: str, login: str = LOGIN) -> str:
    return f"zookeeper://{login}@{server.place}/{chroot}"


def test_what_is_made_belongs_to_the_user(server: ZooKeeperServer, zk: KazooClient, root: KazooClient) -> None:
    with opened(logged_in(server, "mine")) as backend, opened(logged_in(server, "mine")) as other:
        grant = take(backend, "p")
        assert try_once(other, "p") is None
        for path in ("/mine", "/mine/distlock/lock", f"/mine{folder('p')}"):
            (acl,) = root.get_acls(path)[0]
            assert (acl.id.scheme, acl.id.id.partition(":")[0], acl.acl_list) == ("digest", "sam", ["ALL"])
        with pytest.raises(NoAuthError):
            zk.get_children(f"/mine{folder('p')}")
        state = other.inspect("p", 5.0)
        assert state.holder is not None
        assert state.expires_in is not None
        backend.release(backend.renew(grant, 5.0), 5.0)
        assert try_once(other, "p")


@pytest.mark.parametrize("login", ["", "sam:wrong@", "sam@", "pam:s3cret@"])
def test_others_are_refused(server: ZooKeeperServer, login: str) -> None:
    with opened(logged_in(server, "closed")) as backend:
        try_once(backend, "p")
    with opened(f"zookeeper://{login}{server.place}/closed") as backend:
        for ask in (
            lambda: try_once(backend, "p"),
            lambda: backend.inspect("p", 5.0),
            lambda: list(backend.locks(5.0)),
        ):
            with pytest.raises(Refused, match="does not allow it: the user or password is wrong, or lacks") as error:
                ask()
            assert server.place in str(error.value)
            assert "sam" not in str(error.value)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_others_are_refused_where_nothing_is_yet(server: ZooKeeperServer, root: KazooClient, depth: int) -> None:
    """A lock that was never had would seem to be free. Who may make it, or see that it is not there, is told so."""
    acl = [
        make_digest_acl("root", "x", all=True),
        make_digest_acl("sam", SECRET, create=True),
        make_digest_acl("eve", "y", read=True),
    ]
    nodes = [f"rights{depth}", "distlock", "lock"][:depth]
    for count in range(depth):
        root.create(f"/{'/'.join(nodes[: count + 1])}", acl=acl)
    for login in ("", "sam:wrong@", "sam@"):
        with opened(f"zookeeper://{login}{server.place}/{nodes[0]}") as backend:
            for ask in (lambda: backend.inspect("p", 5.0), lambda: list(backend.locks(5.0))):
                with pytest.raises(Refused, match="does not allow it"):
                    ask()
    for login in (LOGIN, "eve:y"):
        with opened(f"zookeeper://{login}@{server.place}/{nodes[0]}") as backend:
            assert not backend.inspect("p", 5.0).held
    assert root.get_children(f"/{'/'.join(nodes)}") == []


def test_a_password_from_the_environment(server: ZooKeeperServer) -> None:
    with opened(f"zookeeper://sam@{server.place}/environment", password=SECRET) as backend:
        take(backend, "p")
    with opened(logged_in(server, "environment")) as backend:
        assert backend.inspect("p", 5.0).held
    with opened(logged_in(server, "environment"), password="another one") as backend:
        assert backend.inspect("p", 5.0).held
    with opened(f"zookeeper://{server.place}/nobody", password=SECRET) as backend:
        take(backend, "p")  # a URL without a user needs none
    with opened(f"zookeeper://{server.place}/nobody") as backend:
        assert backend.inspect("p", 5.0).held


def test_the_smallest_rights_that_will_do(server: ZooKeeperServer, root: KazooClient) -> None:
    """As docs/zookeeper.md has it: made by an administrator, nothing above is the user's."""
    mine = make_digest_acl("root", "x", all=True)
    rights = make_digest_acl("sam", SECRET, read=True, create=True, delete=True)
    root.create("/prepared", acl=[mine])
    root.create("/prepared/distlock", acl=[mine, make_digest_acl("sam", SECRET, create=True, delete=True)])
    root.create("/prepared/distlock/lock", acl=[mine, rights])
    root.create("/prepared/distlock/fence", acl=[mine, rights])
    with opened(logged_in(server, "prepared")) as backend, opened(logged_in(server, "prepared")) as other:
        grant = take(backend, "p")
        assert try_once(other, "p") is None
        assert other.inspect("p", 5.0).expires_in
        assert [state.name for state in other.locks(5.0)] == ["p"]
        backend.release(backend.renew(grant, 5.0), 5.0, (Mark("x", 0.0, 60.0),))
        assert other.marked("p", "x", 5.0)
        for now in (False, True):
            grant = take(backend, "p")
            backend.mark(grant, Mark("x", 0.0, 60.0), 5.0)
            assert other.revoke("p", grant.token, None, "me", 5.0, now=now)
            backend.release(grant, 5.0)
        assert [other.advance_fence("disk", 0, token, 5.0) for token in (9, 3)] == [9, 9]
        other.reset_fence("disk", 0, 5.0)
        assert not list(other.purge(bool, 0.0, 5.0)), "a mark is to be remembered"
        for holders in (1, 3):
            backend.release(take(backend, "q", holders=holders), 5.0)
            assert list(other.purge(bool, 0.0, 5.0)) == ["q"]
        assert list(other.purge(bool, 0.0, 5.0, fences=True)) == ["disk"]


def test_who_may_not_remove_is_refused(server: ZooKeeperServer, root: KazooClient) -> None:
    rights = make_digest_acl("sam", SECRET, read=True, create=True)
    root.create("/kept/distlock/lock", acl=[make_digest_acl("root", "x", all=True), rights], makepath=True)
    with opened(logged_in(server, "kept")) as backend:
        backend.release(take(backend, "p"), 5.0)
        with pytest.raises(Refused, match="lacks a permission"):
            list(backend.purge(bool, 0.0, 5.0))
        assert try_once(backend, "p")


def test_a_login_in_the_command(server: ZooKeeperServer, tmp_path: Path) -> None:
    lab = Lab(tmp_path, logged_in(server, "command"))
    try:
        done = lab.run("-v", "p", "--", "sh", "-c", "env; cat $DISTLOCK_LEASE")
        assert done.returncode == 0
        refused = lab.run("-b", f"zookeeper://sam:WRONG@{server.place}/command", "-w", "0", "p", "--", "touch", "ran")
        assert refused.returncode == 77
        assert refused.stderr.count(b"\n") == 1
        environment = {"DISTLOCK_PASSWORD": SECRET}
        given = lab.run("-b", f"zookeeper://sam@{server.place}/command", "p", "--", "env", environment=environment)
        assert given.returncode == 0
        assert not (tmp_path / "ran").exists()
        shown = done.stderr + refused.stderr + given.stderr + given.stdout + done.stdout.partition(b"{")[2]
        for secret in (SECRET.encode(), b"s3cret", b"WRONG"):
            assert secret not in shown.replace(lab.backend.encode(), b"")
    finally:
        lab.close()


# --- TLS -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority(tmp_path_factory.mktemp("tls") / "ca")


def tls_server(tmp_path: Path, ca: Path, client_auth: str, *alternatives: str) -> ZooKeeperServer:
    cert, key = certificate(ca, f"server-{tmp_path.name}", *(alternatives or ("IP:127.0.0.1",)))
    both = tmp_path / "server.pem"
    both.write_text(key.read_text() + cert.read_text())
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(both),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(ca),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": client_auth,
    }
    return ZooKeeperServer(tmp_path / "zookeeper", settings, secure=True)


@pytest.fixture(scope="module")
def secure(ca: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Wants a certificate of its clients."""
    with tls_server(tmp_path_factory.mktemp("secure"), ca, "need").running() as one:
        yield one


def test_tls_with_a_certificate_of_our_own(secure: ZooKeeperServer, ca: Path) -> None:
    cert, key = certificate(ca, "client")
    url = f"{secure.url}?ca={ca}&cert={cert}&key={key}"
    with opened(url) as backend, opened(url) as other:
        grant = take(backend, "p", ttl=20.0)
        with other.enqueue(request("p", 20.0)) as ticket:
            assert ticket.poll() is None
            grant = backend.renew(grant, 5.0)
            backend.release(grant, 5.0)
            start = backend.clock()
            assert acquire(ticket, 5.0)
            assert backend.clock() - start < 0.5


def test_tls_without_a_certificate_of_our_own(secure: ZooKeeperServer, ca: Path) -> None:
    with opened(f"{secure.url}?ca={ca}") as backend, pytest.raises(DistlockError) as error:
        try_once(backend, "p")
    assert secure.place in str(error.value)


def test_a_server_of_another_authority_is_refused(secure: ZooKeeperServer, tmp_path: Path) -> None:
    for query in (f"?ca={authority(tmp_path / 'other')}", ""):
        with opened(f"{secure.url}{query}") as backend, pytest.raises(Refused, match="certificate that does not pass"):
            try_once(backend, "p")


def test_a_certificate_for_another_host_is_refused(ca: Path, tmp_path: Path) -> None:
    with (
        tls_server(tmp_path, ca, "none", "DNS:elsewhere.example").running() as server,
        opened(f"{server.url}?ca={ca}") as backend,
        pytest.raises(Refused, match="does not pass"),
    ):
        try_once(backend, "p")


def test_tls_and_not_tls_do_not_match(server: ZooKeeperServer, secure: ZooKeeperServer, ca: Path) -> None:
    for url in (f"zookeepers://{server.place}?ca={ca}", f"zookeeper://{secure.place}"):
        with opened(url) as backend, pytest.raises(Unavailable):
            try_once(backend, "p", ttl=9.0)


def test_a_file_that_is_no_certificate(secure: ZooKeeperServer, ca: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.pem"
    odd.write_text("no certificate\n")
    for query in (f"?ca={odd}", f"?ca={ca}&cert={odd}"):
        with opened(f"{secure.url}{query}") as backend, pytest.raises(ConfigurationError, match="no usable PEM file"):
            try_once(backend, "p")
