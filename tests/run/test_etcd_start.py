"""Getting a lock on etcd, or not: codes, one line, nothing started, nothing left, no secret shown."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import etcd_fixtures
from certificates import authority, certificate
from distlock.backends.etcd_record import encoded
from etcd_fixtures import etcdctl_lock, nothing_left, only_records, queue_of, record_of
from etcd_servers import EtcdCluster, EtcdMember
from processes import Lab, renewer_of, wait_until
from proxy import Proxy
from servers import free_port

SECRET = "hunter2"


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    with EtcdMember(tmp_path_factory.mktemp("etcd")).running() as one:
        yield one


server = etcd_fixtures.emptied_server


@pytest.fixture
def lab(tmp_path: Path, server: EtcdMember) -> Iterator[Lab]:
    made = Lab(tmp_path, server.url)
    yield made
    made.close()


def refused(lab: Lab, url: str, code: int, words: str, *options: str, seconds: float = 20.0) -> None:
    """The run ends with this code and one line; nothing was started."""
    mark = lab.folder / "mark"
    start = time.monotonic()
    done = lab.run(*options, "job", "--", "touch", str(mark), environment={"DISTLOCK_BACKEND": url}, seconds=seconds)
    assert time.monotonic() - start < seconds
    text = done.stderr.decode()
    assert (done.returncode, done.stdout, text.count("\n")) == (code, b"", 1), text
    assert text.startswith("distlock: ")
    assert words in text
    assert SECRET not in text
    assert not mark.exists()


def test_a_run_leaves_only_the_record(lab: Lab, server: EtcdMember) -> None:
    done = lab.run("job", "--", "sh", "-c", "echo $DISTLOCK_FENCING_TOKEN; exit 9")
    assert (done.returncode, done.stderr) == (9, b"")
    assert nothing_left(server, record_of("job"))
    assert int(done.stdout) > 0


def test_the_child_does_not_get_what_etcd3_needs(lab: Lab) -> None:
    done = lab.run("job", "--", "env", environment={"LC_ALL": "C"})
    assert b"PROTOCOL_BUFFERS" not in done.stdout
    assert b"GRPC" not in done.stdout
    given = {"GRPC_VERBOSITY": "debug", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "upb"}
    done = lab.run("job", "--", "env", environment=given)
    assert done.stderr == b""
    assert b"GRPC_VERBOSITY=debug\n" in done.stdout
    assert b"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=upb\n" in done.stdout


def test_a_web_proxy_is_not_asked(lab: Lab) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    done = lab.run("job", "--", "true", environment={"http_proxy": nobody, "https_proxy": nobody, "grpc_proxy": nobody})
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.faults
def test_nothing_is_left_of_many_runs_and_many_conflicts(lab: Lab, server: EtcdMember) -> None:
    """In a row, then side by side: a hundred in all."""
    for _ in range(10):
        assert lab.run("job", "--", "true").returncode == 0
    with etcdctl_lock(server, "/distlock/lock/job"):
        for _ in range(10):
            assert lab.run("-n", "job", "--", "true").returncode == 75
        many = [lab.start("-w", "1.5", "job", "--", "true") for _ in range(20)]
        assert [one.wait(30) for one in many] == [75] * 20
        wait_until(lambda: len(server.leases()) == 1, 2.0)
        assert len(server.keys(queue_of("job"))) == 1
        foreign = server.leases()  # which etcdctl leaves behind
    for _ in range(2):
        many = [lab.start("job", "--", "true") for _ in range(30)]
        assert [one.wait(60) for one in many] == [0] * 30
    assert only_records(server, "job")
    assert set(server.leases()) <= set(foreign)


@pytest.mark.parametrize("options", [["-n"], ["-w", "0.3"]])
def test_a_conflict_leaves_nothing(lab: Lab, server: EtcdMember, options: list[str]) -> None:
    server.ctl("put", f"{queue_of('job')}1", "")
    done = lab.run(*options, "job", "--", "true")
    assert done.returncode == 75
    told = done.stderr.decode()
    if options == ["-n"]:
        assert told == ""
    else:
        assert told.startswith("distlock: 'job': not had within 300ms: held by somebody unknown, token ")
    assert nothing_left(server, f"{queue_of('job')}1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_waiting_leaves_nothing(lab: Lab, server: EtcdMember, number: signal.Signals) -> None:
    server.ctl("put", f"{queue_of('job')}1", "")
    run = lab.start("job", "--", "true")
    wait_until(lambda: len(server.keys(queue_of("job"))) == 2)
    renewer = renewer_of(run.pid)
    start = time.monotonic()
    run.send_signal(number)
    assert run.wait(5) == -number
    assert time.monotonic() - start < 1.0
    wait_until(lambda: nothing_left(server, f"{queue_of('job')}1"), 1.0)
    wait_until(lambda: not os.path.exists(f"/proc/{renewer}"))


def test_a_signal_while_the_server_hangs(lab: Lab, server: EtcdMember) -> None:
    server.ctl("put", f"{queue_of('job')}1", "")
    run = lab.start("--ttl", "3", "job", "--", "true")
    wait_until(lambda: len(server.keys(queue_of("job"))) == 2)
    server.freeze()
    try:
        start = time.monotonic()
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        assert time.monotonic() - start < 1.0
    finally:
        server.thaw()
    wait_until(lambda: nothing_left(server, f"{queue_of('job')}1"), 8, "the end of its leases")


def test_nothing_listens(lab: Lab) -> None:
    place = f"127.0.0.1:{free_port()}"
    url = f"etcd://u:{SECRET}@{place}"
    refused(lab, url, 69, f"{place} is not reached: Connection refused", "-n", seconds=8)
    refused(lab, url, 69, f"{place} is not reached", "-w", "1.5", seconds=10)


def test_a_server_that_hangs(lab: Lab, server: EtcdMember) -> None:
    server.freeze()
    try:
        refused(lab, server.url, 69, f"{server.place} does not answer", "-n", seconds=10)
        refused(lab, server.url, 69, f"{server.place} does not answer", "-w", "1", seconds=12)
    finally:
        server.thaw()
    wait_until(lambda: nothing_left(server), 35, "the end of what was asked for")


def test_packets_that_are_dropped(lab: Lab, server: EtcdMember) -> None:
    with Proxy(server.port) as proxy:
        proxy.black_hole()
        refused(lab, f"etcd://127.0.0.1:{proxy.port}", 69, "does not answer", "-n", seconds=10)


def test_a_server_that_comes_while_we_wait(lab: Lab, tmp_path: Path) -> None:
    late = EtcdMember(tmp_path / "late")
    run = lab.start("-w", "9", "job", "--", "true", environment={"DISTLOCK_BACKEND": late.url})
    renewer_of(run.pid)
    with late.running():
        assert run.wait(12) == 0


@pytest.mark.faults
def test_endpoints_in_turn(lab: Lab, server: EtcdMember, tmp_path: Path) -> None:
    """One refuses, one is frozen, one answers: whichever comes first."""
    frozen = EtcdMember(tmp_path / "frozen")
    with frozen.running():
        frozen.freeze()
        url = f"etcd://127.0.0.1:{free_port()},{frozen.place},{server.place}"
        for _ in range(5):
            done = lab.run("-n", "job", "--", "true", environment={"DISTLOCK_BACKEND": url})
            assert (done.returncode, done.stderr) == (0, b"")
        frozen.thaw()
    none = f"127.0.0.1:{free_port()}"
    refused(lab, f"etcd://{none},{none[:-1]}0", 69, "none of 2 endpoints serves us: ", "-n", seconds=8)


@pytest.mark.faults
def test_no_quorum(lab: Lab, tmp_path: Path) -> None:
    with EtcdCluster.of(tmp_path / "cluster").running() as cluster:
        assert lab.run("-b", cluster.url, "job", "--", "true").returncode == 0
        for member in cluster.members[1:]:
            member.kill()
        refused(lab, cluster.url, 69, "none of 3 endpoints serves us: ", "-n", seconds=10)


def test_users(lab: Lab, tmp_path: Path) -> None:
    with EtcdMember(tmp_path / "users", options=("--bcrypt-cost", "4")).running() as server:
        server.ctl("user", "add", f"root:{SECRET}")
        server.ctl("user", "grant-role", "root", "root")
        server.ctl("auth", "enable")
        refused(lab, f"etcd://root:wrong@{server.place}", 77, f"{server.place} refuses the user or password", seconds=3)
        refused(lab, f"etcd://{SECRET}:{SECRET}@{server.place}", 77, "refuses the user or password", seconds=3)
        refused(lab, server.url, 77, f"{server.place} wants a user and password", seconds=3)
        # A password from the environment reaches the server and not the command; one in the URL comes first.
        given = {"DISTLOCK_BACKEND": f"etcd://root@{server.place}", "DISTLOCK_PASSWORD": SECRET}
        done = lab.run("job", "--", "sh", "-c", "env | grep -c DISTLOCK_PASSWORD", environment=given)
        assert (done.returncode, done.stdout, done.stderr) == (1, b"0\n", b"")
        in_url = {"DISTLOCK_BACKEND": f"etcd://root:wrong@{server.place}", "DISTLOCK_PASSWORD": SECRET}
        assert lab.run("job", "--", "true", environment=in_url).returncode == 77
        # And it is seen nowhere: neither in a process list nor in the lease file.
        backend = {"DISTLOCK_BACKEND": f"etcd://root:{SECRET}@{server.place}"}
        run = lab.start("-vv", "job", "--", "sh", "-c", "cat $DISTLOCK_LEASE; echo; exec sleep 60", environment=backend)
        assert run.stdout
        lease = run.stdout.readline().decode()
        assert f"etcd://root:***@{server.place}" in lease
        assert SECRET not in lease
        for pid in (run.pid, renewer_of(run.pid)):
            assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        run.terminate()
        _, stderr = run.communicate(timeout=5)
        assert SECRET.encode() not in stderr


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"etcd://u:{SECRET}@h/prefix", "no path"),
        (f"etcd://u:{SECRET}@h:x", "HOST:PORT"),
        (f"etcds://u:{SECRET}@h?ca=/none", "ca= names no file"),
    ],
)
def test_a_url_that_cannot_work(lab: Lab, url: str, words: str) -> None:
    refused(lab, url, 78, words, seconds=3)


def test_tls(lab: Lab, tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    another = authority(tmp_path / "another")
    pem, key = certificate(ca, "server", "IP:127.0.0.1")
    secure = EtcdMember(tmp_path / "tls", tls=True, options=("--cert-file", str(pem), "--key-file", str(key)))
    with secure.running():
        assert lab.run("-b", f"{secure.url}?ca={ca}", "job", "--", "sh", "-c", "exit 5").returncode == 5
        refused(lab, f"{secure.url}?ca={another}", 77, "certificate that does not pass", seconds=3)
        refused(lab, secure.url, 77, "certificate that does not pass", seconds=3)


@pytest.mark.parametrize("name", ["замок/1", "鍵", "a b*?", "x" * 200])
def test_names_are_the_same_in_every_locale(lab: Lab, server: EtcdMember, name: str) -> None:
    for locale in ("C", "C.UTF-8", "POSIX"):
        done = lab.run(name, "--", "sh", "-c", "sleep 0", environment={"LC_ALL": locale})
        assert (done.returncode, done.stderr) == (0, b"")
        assert only_records(server, encoded(name).decode())


def test_correctness_is_what_it_is_for(lab: Lab) -> None:
    assert lab.run("--require", "correctness", "job", "--", "true").returncode == 0


def test_no_client_library_in_the_supervisor(lab: Lab) -> None:
    run = lab.start("job", "--", "sleep", "60")
    renewer = renewer_of(run.pid)
    wait_until(lambda: "/cygrpc." in Path(f"/proc/{renewer}/maps").read_text())
    assert "/cygrpc." not in Path(f"/proc/{run.pid}/maps").read_text()
