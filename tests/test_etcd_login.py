"""Who may: the smallest role that will do, as documented; logins that expire; TLS that is verified."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from certificates import authority, certificate
from contenders import acquire, never, request, take, try_once
from distlock.backends.base import ConfigurationError, Refused, Unavailable
from etcd_fixtures import alarm_of, everything, opened, registers, taken_and_given_back
from etcd_servers import EtcdMember, etcdctl
from processes import wait_until

DOCUMENTATION = (Path(__file__).parent.parent / "docs/etcd.md").read_text()
ROOT = {"ETCDCTL_USER": "root:rootpw"}
TOKEN_TTL = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("etcd")


# -- users -------------------------------------------------------------------------------------------------------------


def documented() -> list[list[str]]:
    """The commands of the page, for both users."""
    found = re.findall(r"^etcdctl ((?:role|user) .*)$", DOCUMENTATION, re.MULTILINE)
    assert len(found) == 11
    return [shlex.split(line) for line in found]


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[EtcdMember]:
    quick = ("--auth-token-ttl", str(TOKEN_TTL), "--bcrypt-cost", "4")
    with EtcdMember(folder / "users", options=quick).running() as one:
        one.ctl("user", "add", "root:rootpw")
        one.ctl("user", "grant-role", "root", "root")
        for words in documented():
            one.ctl(*words)
        one.ctl("user", "add", "other:pw")
        one.ctl("auth", "enable")
        yield one


def url_of(server: EtcdMember, user: str = "distlock:PASSWORD@") -> str:
    return f"etcd://{user}{server.place}"


def test_the_documented_role_is_enough(server: EtcdMember) -> None:
    everything(url_of(server), "n")
    everything(url_of(server), "p q/ж")
    registers(url_of(server, "fence:PASSWORD@"), "p q/ж")


def test_who_runs_jobs_cannot_touch_registers_nor_the_other_way_round(server: EtcdMember) -> None:
    with pytest.raises(Refused, match=f"^{server.place} does not allow it: "):
        registers(url_of(server), "n")
    with pytest.raises(Refused, match=f"^{server.place} does not allow it: "):
        everything(url_of(server, "fence:PASSWORD@"), "n")


def test_the_documented_role_lets_nobody_do_more(server: EtcdMember) -> None:
    as_distlock = {"ETCDCTL_USER": "distlock:PASSWORD"}
    for words in (["get", "x"], ["put", "x", "y"], ["get", "--prefix", "/"], ["put", "/distlock/fence/x", "1"]):
        assert etcdctl(server.place, *words, environment=as_distlock, check=False) == ""
    assert etcdctl(server.place, "put", "/distlock/lock/x/1", "y", environment=as_distlock) == "OK\n"
    etcdctl(server.place, "del", "/distlock/lock/x/1", environment=as_distlock)


@pytest.mark.parametrize("what", ["lock", "token", "success", "mark"])
def test_nothing_of_the_documented_role_can_be_left_out(server: EtcdMember, what: str) -> None:
    prefix = f"/distlock/{what}/"
    server.ctl("role", "revoke-permission", "distlock", prefix, "--prefix", environment=ROOT)
    try:
        with pytest.raises(Refused, match=f"^{server.place} does not allow it: "):
            everything(url_of(server), f"without {what}")
    finally:
        server.ctl("role", "grant-permission", "distlock", "--prefix=true", "readwrite", prefix, environment=ROOT)
    everything(url_of(server), f"with {what}")


def test_who_may_not(server: EtcdMember) -> None:
    for user, words in (
        ("distlock:wrong@", "refuses the user or password"),
        ("nobody:x@", "refuses the user or password"),
        ("", "wants a user and password"),
        ("other:pw@", "does not allow it"),
    ):
        with opened(url_of(server, user)) as backend:
            for ask in (lambda b=backend: try_once(b, "n"), lambda b=backend: b.inspect("n", 5.0)):
                with pytest.raises(Refused, match=f"^{server.place} {words}"):
                    ask()


def test_a_server_without_users_takes_everybody(folder: Path) -> None:
    with EtcdMember(folder / "open").running() as server:
        everything(url_of(server), "n")


def test_logins_that_expire(server: EtcdMember) -> None:
    """Under a holder and under a waiter: both go on, and the waiter is woken."""
    with opened(url_of(server)) as backend, opened(url_of(server)) as other, never() as cancel:
        held = take(backend, "n", ttl=60.0)
        alarm = alarm_of(backend, held)
        with other.enqueue(request("n", 30.0)) as ticket:
            assert ticket.poll() is None
            until = time.monotonic() + 2.5 * TOKEN_TTL
            while time.monotonic() < until:
                ticket.wait(0.5, cancel)
                assert ticket.poll() is None
            time.sleep(TOKEN_TTL + 1.5)  # quiet for longer than a login: the server looks for old ones each second
            held = backend.renew(held, 5.0)
            assert backend.alarm(held) == alarm
            backend.release(held, 5.0)
            released = time.monotonic()
            other.release(acquire(ticket), 5.0)
            assert time.monotonic() - released < 1.5


def test_a_login_that_a_restart_has_forgotten(server: EtcdMember) -> None:
    with opened(url_of(server)) as backend:
        held = take(backend, "n", ttl=60.0)
        server.restart()
        wait_until(server.is_leader)
        held = backend.renew(held, 5.0)
        backend.release(held, 5.0)


def test_a_role_that_changes_under_a_lease(server: EtcdMember) -> None:
    """Each change makes every login old."""
    with opened(url_of(server)) as backend:
        held = take(backend, "n", ttl=60.0)
        server.ctl("role", "add", "another", environment=ROOT)
        backend.renew(held, 5.0)
        server.ctl("role", "delete", "another", environment=ROOT)
        backend.release(held, 5.0)


# -- TLS ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ca(folder: Path) -> Path:
    return authority(folder / "ca")


def tls_server(folder: Path, ca: Path, name: str, *alternatives: str, clients: bool = False) -> EtcdMember:
    pem, key = certificate(ca, name, *alternatives)
    files = ("--cert-file", str(pem), "--key-file", str(key))
    asked = ("--client-cert-auth", "--trusted-ca-file", str(ca)) if clients else ()
    return EtcdMember(folder / name, tls=True, options=(*files, *asked))


@pytest.fixture(scope="module")
def secure(folder: Path, ca: Path) -> Iterator[EtcdMember]:
    with tls_server(folder, ca, "good", "IP:127.0.0.1", "DNS:localhost").running() as one:
        yield one


def test_tls(secure: EtcdMember, ca: Path) -> None:
    everything(f"{secure.url}?ca={ca}", "n")
    everything(f"etcds://localhost:{secure.port}?ca={ca}", "n")


def test_a_certificate_nobody_vouches_for(secure: EtcdMember, folder: Path) -> None:
    another = authority(folder / "another")
    for url in (secure.url, f"{secure.url}?ca={another}"):
        with opened(url) as backend, pytest.raises(Refused, match=f"^{secure.place} has a certificate that does not"):
            try_once(backend, "n")


def test_a_certificate_of_another_host(folder: Path, ca: Path) -> None:
    server = tls_server(folder, ca, "elsewhere", "DNS:elsewhere.example")
    with server.running(), opened(f"{server.url}?ca={ca}") as backend, pytest.raises(Refused, match="does not pass"):
        try_once(backend, "n")


def test_client_certificates(folder: Path, ca: Path) -> None:
    with tls_server(folder, ca, "strict", "IP:127.0.0.1", clients=True).running() as server:
        pem, key = certificate(ca, "client")
        everything(f"{server.url}?ca={ca}&cert={pem}&key={key}", "n")
        with opened(f"{server.url}?ca={ca}") as backend, pytest.raises(Refused, match="wants one"):
            try_once(backend, "n")
        wrong = f"{server.url}?ca={ca}&cert={pem}&key={ca.parent / 'ca.key'}"
        with opened(wrong) as backend, pytest.raises(ConfigurationError, match="no pair"):
            try_once(backend, "n")


def test_a_file_that_is_no_certificate(secure: EtcdMember, tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    wrong = f"{secure.url}?ca={tmp_path}/ca"
    with opened(wrong) as backend, pytest.raises(ConfigurationError, match="no PEM file"):
        try_once(backend, "n")


def test_tls_to_a_plain_port_and_plain_to_a_tls_port(folder: Path, secure: EtcdMember, ca: Path) -> None:
    plain = EtcdMember(folder / "plain")
    with plain.running(), opened(f"etcds://{plain.place}?ca={ca}") as backend, pytest.raises(Unavailable, match="TLS"):
        try_once(backend, "n")
    with opened(f"etcd://{secure.place}") as backend, pytest.raises(Unavailable, match=r"closed|reset|answer"):
        try_once(backend, "n")


def test_system_certificates(secure: EtcdMember, ca: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ca= those that other programs of the host trust, as SSL_CERT_FILE names them."""
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    with opened(secure.url) as backend:
        assert taken_and_given_back(backend, "n")
