"""Getting a lock on PostgreSQL, or not: codes, one line, nothing started, nothing left, no secret shown."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import postgres_fixtures
from certificates import authority, certificate
from postgres_fixtures import NOTHING, hold, left_behind, owner, waiters
from postgres_servers import PostgresServer, postgres
from processes import DISTLOCK, Lab, renewer_of, wait_until
from proxy import Proxy
from servers import free_port, unread

SECRET = "hunter2"
HBA = ["host all job,strange 127.0.0.1/32 scram-sha-256", "host all banned 127.0.0.1/32 reject"]


@pytest.fixture(scope="module")
def one_server() -> Iterator[PostgresServer]:
    with postgres(hba=HBA) as server:
        server.role("job", SECRET)
        server.role("banned")
        yield server


server = postgres_fixtures.emptied_server


@pytest.fixture(params=["postgresql", "postgresql+advisory"])
def lab(tmp_path: Path, server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Lab]:
    made = Lab(tmp_path, server.url_of("postgres", scheme=request.param))
    yield made
    made.close()


@pytest.fixture
def lease(tmp_path: Path, server: PostgresServer) -> Iterator[Lab]:
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


def test_a_run_leaves_only_the_token(lab: Lab, server: PostgresServer) -> None:
    done = lab.run("job", "--", "sh", "-c", "echo $DISTLOCK_FENCING_TOKEN; exit 9")
    assert (done.returncode, done.stderr) == (9, b"")
    assert server.sql("SELECT token FROM distlock_lock") == [int(done.stdout)]
    assert left_behind(server) == NOTHING
    wait_until(lambda: server.sessions() == [])


@pytest.mark.parametrize("options", [["-n"], ["-w", "0.3"]])
def test_a_conflict_leaves_nothing(lab: Lab, server: PostgresServer, options: list[str]) -> None:
    hold(server)
    done = lab.run(*options, "job", "--", "true")
    assert done.returncode == 75
    assert done.stderr.decode().count("\n") == (0 if options == ["-n"] else 1)
    assert waiters(server) == 0
    assert left_behind(server)["advisory"] == []
    wait_until(lambda: server.sessions() == [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_waiting_leaves_nothing(lab: Lab, server: PostgresServer, number: signal.Signals) -> None:
    hold(server)
    run = lab.start("job", "--", "true")
    wait_until(lambda: waiters(server) == 1)
    renewer = renewer_of(run.pid)
    start = time.monotonic()
    run.send_signal(number)
    assert run.wait(5) == -number
    assert time.monotonic() - start < 1.0
    wait_until(lambda: waiters(server) == 0, 1.5)
    wait_until(lambda: not os.path.exists(f"/proc/{renewer}"))


def test_a_signal_while_the_server_hangs(lease: Lab, server: PostgresServer) -> None:
    hold(server)
    run = lease.start("job", "--", "true")
    wait_until(lambda: waiters(server) == 1)
    server.freeze()
    try:
        wait_until(lambda: unread(server.port), what="a request that is not answered")
        start = time.monotonic()
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        assert time.monotonic() - start < 1.0
    finally:
        server.thaw()
    wait_until(lambda: server.sessions() == [])


def test_nothing_listens(lab: Lab) -> None:
    place = f"127.0.0.1:{free_port()}"
    scheme = lab.backend.partition(":")[0]
    refused(
        lab, f"{scheme}://u:{SECRET}@{place}/db", 69, f"{place} is not reached: Connection refused", "-n", seconds=3
    )
    refused(lab, f"{scheme}://u:{SECRET}@{place}/db", 69, f"{place} is not reached", "-w", "1.5", seconds=4)
    missing = f"{scheme}:///db?host=/nowhere"
    refused(lab, missing, 69, "/nowhere/.s.PGSQL.5432 is not reached: there is no such socket", "-n", seconds=3)


def test_a_server_that_hangs(lab: Lab, server: PostgresServer) -> None:
    server.freeze()
    try:
        refused(lab, lab.backend, 69, f"{server.place} does not answer", "-n", seconds=9)
        refused(lab, lab.backend, 69, f"{server.place} does not answer", "-w", "1", seconds=10)
    finally:
        server.thaw()
    wait_until(lambda: server.sessions() == [])
    assert owner(server) is None


def test_packets_that_are_dropped(lab: Lab, server: PostgresServer) -> None:
    with Proxy(server.port) as proxy:
        proxy.black_hole()
        url = lab.backend.replace(str(server.port), str(proxy.port))
        refused(lab, url, 69, "does not answer", "-n", seconds=9)


def test_a_server_that_comes_while_we_wait(lease: Lab) -> None:
    with postgres() as late:
        late.crash()
        run = lease.start("-w", "9", "job", "--", "true", environment={"DISTLOCK_BACKEND": late.url})
        renewer_of(run.pid)
        late.start(ready=False)
        assert run.wait(12) == 0


def test_who_is_not_let_in(lab: Lab, server: PostgresServer) -> None:
    scheme, place = lab.backend.partition(":")[0], server.place
    refused(lab, f"{scheme}://job:{SECRET}x@{place}/postgres", 77, f"{place} refuses the user or password", seconds=5)
    refused(
        lab, f"{scheme}://strange:{SECRET}@{place}/postgres", 77, f"{place} refuses the user or password", seconds=5
    )
    refused(lab, f"{scheme}://job@{place}/postgres", 77, f"{place} wants a password", seconds=5)
    refused(lab, f"{scheme}://banned@{place}/postgres", 77, "pg_hba.conf", seconds=5)
    refused(lab, f"{scheme}://postgres@{place}/none", 78, "does not have the database of the URL", seconds=5)


def test_a_role_without_rights(lab: Lab, server: PostgresServer) -> None:
    scheme = lab.backend.partition(":")[0]
    theirs = f"{scheme}://job:{SECRET}@{server.place}/postgres"
    refused(lab, theirs, 77, "have `distlock init` run by a role that has it", seconds=5)
    assert server.sql("SELECT to_regclass('public.distlock_lock')") == [None]


def test_init(lease: Lab, server: PostgresServer) -> None:
    def init(url: str) -> tuple[int, str, str]:
        process = lease.spawn([DISTLOCK, "init", "-b", url])
        out, err = process.communicate(timeout=10)
        return process.returncode, out.decode(), err.decode()

    theirs = f"postgresql://job:{SECRET}@{server.place}/postgres"
    code, _, said = init(theirs)
    assert (code, said.count("\n")) == (77, 1)
    for _ in range(2):
        code, told, said = init(server.url)
        assert (code, said) == (0, "")
        assert told == f"tables public.distlock_* at {server.place}, which this role may use\n"
    code, _, said = init(theirs)
    assert code == 77
    assert "may not SELECT on distlock_layout" in said
    assert init("local:///tmp/x") == (0, "local:///tmp/x needs nothing\n", "")


def test_a_password_is_seen_nowhere(lab: Lab, server: PostgresServer) -> None:
    """Neither in a process list nor in the lease file nor in the server's log."""
    with_tables(server)
    scheme = lab.backend.partition(":")[0]
    backend = {"DISTLOCK_BACKEND": f"{scheme}://job:{SECRET}@{server.place}/postgres?connect_timeout=9"}
    run = lab.start("-vv", "job", "--", "sh", "-c", "cat $DISTLOCK_LEASE; echo; exec sleep 60", environment=backend)
    assert run.stdout
    lease = run.stdout.readline().decode()
    assert f"{scheme}://job:***@{server.place}/postgres?***" in lease
    assert SECRET not in lease
    for pid in (run.pid, renewer_of(run.pid)):
        assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    run.terminate()
    _, stderr = run.communicate(timeout=5)
    assert SECRET.encode() not in stderr
    assert SECRET not in server.log()


def with_tables(server: PostgresServer) -> None:
    hold(server, "another")
    server.sql("GRANT ALL ON distlock_lock, distlock_waiter, distlock_layout TO job")


def test_passwords_from_elsewhere(lease: Lab, server: PostgresServer) -> None:
    """DISTLOCK_PASSWORD and libpq's own; the URL's comes first, and the command does not get ours."""
    with_tables(server)
    place = f"{server.place}/postgres"
    job, command = f"postgresql://job@{place}", ["job", "--", "sh", "-c", "env | grep -c DISTLOCK_PASSWORD"]
    ours = {"DISTLOCK_BACKEND": job, "DISTLOCK_PASSWORD": SECRET}
    done = lease.run(*command, environment=ours)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"0\n", b"")
    wrong = {"DISTLOCK_BACKEND": f"postgresql://job:wrong@{place}", "DISTLOCK_PASSWORD": SECRET}
    assert lease.run(*command, environment=wrong).returncode == 77
    assert lease.run(*command, environment={"DISTLOCK_BACKEND": job, "PGPASSWORD": SECRET}).returncode == 1
    passes = lease.folder / "pgpass"
    passes.write_text(f"*:*:*:job:{SECRET}\n")
    passes.chmod(0o600)
    assert lease.run(*command, environment={"DISTLOCK_BACKEND": job, "PGPASSFILE": str(passes)}).returncode == 1


@pytest.mark.parametrize("password", ["a b/@:%ä#?'\\", "x" * 100])
def test_any_password_goes(lease: Lab, server: PostgresServer, password: str) -> None:
    with_tables(server)
    server.sql("ALTER ROLE job PASSWORD '" + password.replace("'", "''") + "'")
    try:
        backend = {"DISTLOCK_BACKEND": f"postgresql://job@{server.place}/postgres", "DISTLOCK_PASSWORD": password}
        assert lease.run("job", "--", "true", environment=backend).returncode == 0
    finally:
        server.sql(f"ALTER ROLE job PASSWORD '{SECRET}'")


def test_a_service_and_libpqs_environment(lease: Lab, server: PostgresServer) -> None:
    services = lease.folder / "pg_service.conf"
    hosts = f"host=127.0.0.1,127.0.0.1\nport={free_port()},{server.port}\n"
    services.write_text(f"[prod]\n{hosts}user=postgres\ndbname=postgres\n")
    environment = {"PGSERVICEFILE": str(services)}
    for url in ("postgresql:///?service=prod", "postgres://?service=prod"):
        assert lease.run("-b", url, "job", "--", "sh", "-c", "exit 5", environment=environment).returncode == 5
    refused(lease, "postgresql:///?service=none", 78, "the service is not defined", seconds=3)
    given = {"PGHOST": str(server.folder), "PGPORT": str(server.port), "PGUSER": "postgres"}
    assert lease.run("-b", "postgresql://", "job", "--", "sh", "-c", "exit 5", environment=given).returncode == 5


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"postgresql://job:{SECRET}@127.0.0.1?socket_timeout=5", "unknown query key 'socket_timeout'"),
        (f"postgresql://job:{SECRET}/@127.0.0.1", "are written %2F"),
        (f"postgresql://job:{SECRET}@127.0.0.1:x/", "a port is a number"),
        (f"postgresql://job:{SECRET}@127.0.0.1/?target_session_attrs=standby", "that can be written to"),
        (f"postgresql://job:{SECRET}@127.0.0.1/?sslmode=maybe", "a value that libpq does not take"),
        (f"postgresql://job:{SECRET}@/?host=a,b,c&port=1,2", "as many ports as hosts"),
        (f"postgresql+advisory:job:{SECRET}", "begins with postgresql+advisory://"),
    ],
)
def test_a_url_that_cannot_work(lease: Lab, url: str, words: str) -> None:
    refused(lease, url, 78, words, seconds=4)


def test_tls(lease: Lab, tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    another = authority(tmp_path / "another")
    pem, key = certificate(ca, "server", "IP:127.0.0.1")
    with postgres(hba=["hostnossl all all 127.0.0.1/32 reject"]) as secure:
        for file, name in ((pem, "server.crt"), (key, "server.key")):
            there = secure.data / name
            there.write_bytes(file.read_bytes())
            os.chown(there, secure.data.stat().st_uid, secure.data.stat().st_gid)
            there.chmod(0o600)
        assert "no encryption" in secure.log() or secure.process
        secure.crash()
        secure.options["ssl"] = "on"
        secure.start()
        url = f"{secure.url}?sslmode=verify-full&sslrootcert="
        assert lease.run("-b", f"{url}{ca}", "job", "--", "sh", "-c", "exit 5").returncode == 5
        refused(lease, f"{url}{another}", 77, "certificate that does not pass", seconds=4)
        refused(lease, f"{url}/none", 78, "sslrootcert=", seconds=4)
        refused(lease, f"{secure.url}?sslmode=disable", 77, "pg_hba.conf", seconds=4)


@pytest.mark.parametrize("name", ["замок/1", "鍵", "a b*?", "x" * 200, "it's"])
def test_names_are_the_same_in_every_locale(lab: Lab, server: PostgresServer, name: str) -> None:
    for locale in ("C", "C.UTF-8", "POSIX"):
        done = lab.run(name, "--", "sh", "-c", "sleep 0", environment={"LC_ALL": locale})
        assert (done.returncode, done.stderr) == (0, b"")
    assert server.sql("SELECT convert_from(name, 'UTF8') FROM distlock_lock") == [name]
    hold(server, name)
    for locale in ("C", "C.UTF-8"):
        assert lab.run("-n", name, "--", "true", environment={"LC_ALL": locale}).returncode == 75


def test_names_that_are_prefixes_of_each_other(lab: Lab, server: PostgresServer) -> None:
    hold(server, "p/1")
    assert lab.run("-n", "p", "--", "true").returncode == 0
    assert lab.run("-n", "p/1", "--", "true").returncode == 75
    assert lab.run("-n", "p/", "--", "true").returncode == 0


def test_require_correctness(lab: Lab, server: PostgresServer) -> None:
    """fsync is off here."""
    done = lab.run("--require", "correctness", "job", "--", "true")
    assert done.returncode == 77
    assert done.stderr.count(b"\n") == 1
    if "advisory" not in lab.backend:
        assert b"fsync is off" in done.stderr
        with postgres({"fsync": "on"}) as durable:
            assert lab.run("-b", durable.url, "--require", "correctness", "job", "--", "true").returncode == 0
    assert owner(server) is None
