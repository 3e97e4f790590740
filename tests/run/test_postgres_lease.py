"""A lease on PostgreSQL under everything that can happen to a server, a session and a network. Always: the last stamp
of the old holder's child comes before the grant to anybody else, but where the row was changed behind our back."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from contending import Contender
from distlock.clock import boottime
from distlock.deadline import default_grace
from postgres_fixtures import NOTHING, left_behind, opened, owner, waiters
from postgres_servers import PostgresServer, pgbouncer, postgres, standby
from processes import Lab, Stamps, is_alive, renewer_of, wait_until
from proxy import Proxy

pytestmark = pytest.mark.faults

TTL = 3.0
_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'distlock'"


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres() as one:
        yield one


@pytest.fixture
def lab(tmp_path: Path, server: PostgresServer) -> Iterator[Lab]:
    made = Lab(tmp_path, server.url)
    yield made
    made.close()


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    with Proxy(server.port) as one:
        yield one


def through(proxy: Proxy) -> str:
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres"


def stamping(lab: Lab, mode: str = "plain", *options: str, backend: str = "") -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(mode)
    run = lab.start("-b", backend or lab.backend, "--ttl", str(TTL), *options, "job", "--", *command)
    stamps.writer()
    return run, stamps


def contender(lab: Lab, backend: str = "") -> Contender:
    return Contender(backend or lab.backend, "job", lab.folder)


def ended(run: subprocess.Popen[bytes], stamps: Stamps) -> str:
    """The line of a run that lost its lease."""
    _, stderr = run.communicate(timeout=TTL + 5)
    assert run.returncode == 76
    assert not is_alive(stamps.writer())
    text = stderr.decode()
    assert text.startswith("distlock: 'job': lease lost: ")
    assert text.endswith("; COMMAND was stopped\n")
    assert text.count("\n") == 1
    return text


def goes_on(stamps: Stamps, other: Contender, seconds: float) -> None:
    until = boottime() + seconds
    while boottime() < until:
        assert stamps.go_on()
        assert other.grant is None


@pytest.mark.parametrize(
    "how",
    [
        "DELETE FROM distlock_lock",
        "UPDATE distlock_lock SET owner = 'thief', expires_at = now() + interval '1 min'",
        "DROP TABLE distlock_lock, distlock_waiter, distlock_layout",
    ],
    ids=lambda how: how.split()[0],
)
def test_a_lock_taken_away_by_somebody(lab: Lab, server: PostgresServer, how: str) -> None:
    """The next renewal tells: TERM at once, everything dead after the grace."""
    run, stamps = stamping(lab, "deaf daemon")
    server.sql(how)
    lost = boottime()
    ended(run, stamps)
    assert stamps.last() - lost < TTL / 3 + default_grace(TTL) + 0.4


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory"])
def test_a_frozen_server(lab: Lab, server: PostgresServer, scheme: str, mode: str) -> None:
    """The child is dead before the lease could run out."""
    url = server.url_of("postgres", scheme=scheme)
    run, stamps = stamping(lab, mode, backend=url)
    (left,) = server.sql("SELECT extract(epoch FROM expires_at - clock_timestamp())::float FROM distlock_lock")
    expires = boottime() + left
    server.freeze()
    assert "could not be renewed in time" in ended(run, stamps)
    assert stamps.last() < expires
    server.thaw()
    with contender(lab, url) as other:
        assert stamps.last() < other.wait(TTL + 3)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory"])
def test_a_server_that_stalls_for_less_than_the_lease(lab: Lab, server: PostgresServer, scheme: str) -> None:
    url = server.url_of("postgres", scheme=scheme)
    run, stamps = stamping(lab, "plain", "--ttl", "10", backend=url)
    server.freeze()
    stamps.keep_coming(4)  # the stall
    server.thaw()
    with contender(lab, url) as other:
        goes_on(stamps, other, 8)
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        assert stamps.last() < other.wait(2)


def test_an_immediate_restart(tmp_path: Path) -> None:
    with postgres({"fsync": "on", "synchronous_commit": "off"}) as server, ExitStack() as stack:
        lab = Lab(tmp_path, server.url)
        stack.callback(lab.close)
        run, stamps = stamping(lab, "plain", "--ttl", "9")
        server.crash()
        server.start()
        with contender(lab) as other:
            goes_on(stamps, other, 10)
            run.terminate()
            assert run.wait(5) == -signal.SIGTERM
            assert stamps.last() < other.wait(2)


def test_sessions_ended_all_the_time(lab: Lab, server: PostgresServer) -> None:
    """A failed renewal is tried again within milliseconds, if the session's end is all that was wrong."""
    run, stamps = stamping(lab)
    held_by = owner(server)
    until = boottime() + 3 * TTL
    while boottime() < until:
        server.sql(_END)
        assert stamps.go_on()
        assert owner(server) == held_by
        stamps.keep_coming(0.3)
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    wait_until(lambda: left_behind(server) == NOTHING)


def test_idle_sessions_ended_by_the_server(tmp_path: Path) -> None:
    """Holder and waiters are idle for longer than they may."""
    with postgres({"idle_session_timeout": "500ms"}) as server, ExitStack() as stack:
        lab = Lab(tmp_path, server.url)
        stack.callback(lab.close)
        run, stamps = stamping(lab)
        waiting = lab.start("job", "--", "true")
        wait_until(lambda: waiters(server) == 1)
        until = boottime() + 2.5 * TTL
        while boottime() < until:
            assert stamps.go_on()
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        assert waiting.wait(5) == 0


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
@pytest.mark.parametrize("how", ["black hole", "refused"])
def test_a_network_that_is_cut(lab: Lab, proxy: Proxy, how: str, mode: str) -> None:
    """A host that vanished is taken over after the TTL, not after TCP's time-out."""
    run, stamps = stamping(lab, mode, backend=through(proxy))
    with contender(lab) as other:
        if how == "refused":
            proxy.refuse()
        else:
            proxy.black_hole()
        granted = other.wait(TTL + 3)
        ended(run, stamps)
    assert stamps.last() < granted


@pytest.mark.parametrize("of_ttl", [0.14, 0.8])
def test_answers_that_come_late_and_then_none(lab: Lab, proxy: Proxy, of_ttl: float) -> None:
    """What counts is when a renewal was sent: the server began to count before its answer came."""
    run, stamps = stamping(lab, "deaf", backend=through(proxy))
    with contender(lab) as other:
        proxy.delay_answers(of_ttl * TTL)
        if of_ttl < 0.5:
            until = boottime() + 2 * TTL
            while boottime() < until:
                assert stamps.go_on()
        proxy.black_hole()
        granted = other.wait(TTL + 3)
        ended(run, stamps)
    assert stamps.last() < granted


@pytest.mark.parametrize("how", ["black hole", "refused"])
def test_a_short_cut_is_survived(lab: Lab, proxy: Proxy, how: str) -> None:
    """With a renewal in the middle of it."""
    run, stamps = stamping(lab, "plain", "--ttl", "12", backend=through(proxy))
    stamps.keep_coming(3)  # renewals come after 3.6 to 4 seconds
    if how == "refused":
        proxy.refuse()
    else:
        proxy.black_hole()
    stamps.keep_coming(1.5)
    proxy.let_pass()
    with contender(lab) as other:
        goes_on(stamps, other, 12)
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory"])
def test_kill_9_of_the_wrapper(lab: Lab, server: PostgresServer, scheme: str) -> None:
    url = server.url_of("postgres", scheme=scheme)
    run, stamps = stamping(lab, "deaf daemon", "--ttl", "60", backend=url)
    with contender(lab, url) as other:
        killed = boottime()
        run.kill()
        granted = other.wait(5)
    assert stamps.last() < granted
    assert granted - killed < 1.0


def test_a_failover_to_a_promoted_standby(tmp_path: Path) -> None:
    """Both in the URL: the lease goes on at the new primary, and so does the next holder's token."""
    with postgres({"fsync": "on"}) as primary, ExitStack() as stack:
        copy = stack.enter_context(standby(primary))
        both = f"postgresql://postgres@{primary.place},{copy.place}/postgres"
        lab = Lab(tmp_path, both)
        stack.callback(lab.close)
        run, stamps = stamping(lab, "plain", "--ttl", "9")
        refused = lab.run("--require", "correctness", "another", "--", "true")
        assert refused.returncode == 77
        assert b"asynchronous standbys (standby)" in refused.stderr
        (token,) = primary.sql("SELECT token FROM distlock_lock WHERE name = 'job'")
        wait_until(lambda: copy.sql("SELECT token FROM distlock_lock WHERE name = 'job'") == [token])
        primary.crash()
        copy.sql("SELECT pg_promote()")
        with contender(lab) as other:
            goes_on(stamps, other, 10)
            run.terminate()
            assert run.wait(5) == -signal.SIGTERM
            assert stamps.last() < other.wait(3)
            assert other.grant
            assert (other.grant.token or 0) > token


def test_a_failover_to_a_standby_that_was_behind(tmp_path: Path) -> None:
    """As documented, it can grant twice. The holder hears of the end of its session, and ends; the later token is the
    greater one."""
    with postgres({"fsync": "on"}) as primary, Proxy(primary.port) as proxy, ExitStack() as stack:
        with opened(primary.url) as backend:
            backend.prepare(5.0)
        copy = stack.enter_context(standby(primary, via=proxy.port))
        proxy.black_hole()
        lab = Lab(tmp_path, f"postgresql://postgres@{primary.place},{copy.place}/postgres")
        stack.callback(lab.close)
        run, stamps = stamping(lab, "plain", "--ttl", "30")
        (token,) = primary.sql("SELECT token FROM distlock_lock")
        assert copy.sql("SELECT token FROM distlock_lock") == []
        copy.sql("SELECT pg_promote()")
        primary.crash()
        lost = boottime()
        ended(run, stamps)
        assert stamps.last() - lost < 30 / 3
        done = lab.run("job", "--", "sh", "-c", f"test $DISTLOCK_FENCING_TOKEN -gt {token}")
        assert done.returncode == 0


def test_the_advisory_lock_of_an_ended_session(lab: Lab, server: PostgresServer) -> None:
    """The command is ended at once, and not only with the next renewal; a foreign client may be in a moment before."""
    run, stamps = stamping(lab, "deaf daemon", "--ttl", "30", backend=server.advisory_url)
    with contender(lab, server.advisory_url) as other:
        dropped = boottime()
        server.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted"
        )
        assert "session that held its advisory lock has ended" in ended(run, stamps)
        assert stamps.last() - dropped < default_grace(30) + 0.5
        assert other.grant is None  # ours wait for the lease


def test_a_frozen_holder_is_taken_over(lab: Lab, server: PostgresServer) -> None:
    """All of it, and its session with it: on the advisory engine that is ended by who comes next."""
    for url in (server.url, server.advisory_url):
        run, stamps = stamping(lab, "plain", backend=url)
        frozen = [run.pid, renewer_of(run.pid), stamps.writer()]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        last = stamps.last()
        with contender(lab, url) as other:
            other.wait(TTL + 3)
            for pid in reversed(frozen):
                os.kill(pid, signal.SIGCONT)
            ended(run, stamps)
        assert last
        stamps.path.unlink()
        with opened(url) as backend:
            grant = other.grant
            assert grant
            backend.release(grant, 5.0)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_server_that_is_gone_at_the_release(lab: Lab, server: PostgresServer, how: str) -> None:
    """The command has done its work: its code stands, and one line says that the lock was not given back."""
    script = "echo started; while test -e job; do sleep 0.01; done; exit 7"
    (lab.folder / "job").touch()
    run = lab.start("--ttl", "30", "job", "--", "sh", "-c", script)
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    if how == "killed":
        server.crash()
    else:
        server.freeze()
    (lab.folder / "job").unlink()
    _, stderr = run.communicate(timeout=8)
    assert run.returncode == 7
    assert stderr.decode().count("\n") == 1
    assert server.place in stderr.decode()
    assert stderr.startswith(b"distlock: ")


def test_fifty_contenders(lab: Lab, server: PostgresServer) -> None:
    """With TTLs of their own, direct and through a pooler; each alone under the lock."""
    script = 'set -C; : > inside || exit 9; echo "$DISTLOCK_FENCING_TOKEN" >> tokens; rm inside'
    with pgbouncer(server) as pooler:
        runs = []
        for number in range(50):
            url = pooler.url() if number % 10 == 0 else lab.backend
            runs.append(lab.start("-b", url, "--ttl", str(3 + number % 20), "job", "--", "sh", "-c", script))
        for run in runs:
            assert run.wait(90) == 0
    tokens = [int(token) for token in (lab.folder / "tokens").read_text().split()]
    assert len(tokens) == 50
    assert tokens == sorted(set(tokens))
    wait_until(lambda: left_behind(server) == NOTHING)
    wait_until(lambda: server.sessions() == [])


def test_no_client_library_in_the_supervisor(lab: Lab) -> None:
    run, _ = stamping(lab)
    assert "psycopg" in Path(f"/proc/{renewer_of(run.pid)}/maps").read_text()
    assert "psycopg" not in Path(f"/proc/{run.pid}/maps").read_text()
