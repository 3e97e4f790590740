"""Through PgBouncer, which shares a few sessions out, statement by statement if it likes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from contenders import Contender, acquire, never, request, take, try_once
from distlock.backends.base import ConfigurationError, LeaseLost
from distlock.clock import boottime
from postgres_fixtures import NOTHING, left_behind, opened
from postgres_servers import PgBouncer, PostgresServer, pgbouncer, postgres
from processes import Lab, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as one:
        yield one


@pytest.fixture(scope="module", params=["transaction", "statement", "session"])
def pooler(request: pytest.FixtureRequest, server: PostgresServer) -> Iterator[PgBouncer]:
    with pgbouncer(server, request.param, size=20 if request.param == "session" else 2) as one:
        yield one


@pytest.fixture(autouse=True)
def no_locks(server: PostgresServer) -> None:
    """Leases of other tests included."""
    server.forget()


@pytest.fixture
def lab(tmp_path: Path, pooler: PgBouncer, server: PostgresServer) -> Iterator[Lab]:
    with opened(server.url) as backend:
        backend.prepare(5.0)
    made = Lab(tmp_path, pooler.url())
    yield made
    made.close()


def test_every_step_goes_through_it(pooler: PgBouncer, server: PostgresServer) -> None:
    """In tables that are made through it as well."""
    assert server.sql("SELECT to_regclass('public.distlock_lock')") == [None]
    with opened(pooler.url()) as backend, opened(pooler.url()) as other:
        grant = take(backend, "job")
        assert try_once(other, "job") is None
        grant = backend.renew(grant, 5.0)
        assert other.inspect("job", 5.0).holder
        assert [state.name for state in other.locks(5.0)] == ["job"]
        backend.release(grant, 5.0)
        backend.release(grant, 5.0)
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)
        assert (take(other, "job").token or 0) > (grant.token or 0)


def test_first_come_first_served_among_direct_and_pooled(pooler: PgBouncer, server: PostgresServer) -> None:
    with opened(server.url) as backend, ExitStack() as stack:
        held = take(backend, "fifo")
        waiters = []
        for number in range(6):
            waiters.append(stack.enter_context(Contender(pooler.url() if number % 2 else server.url, "fifo")))
            waiters[-1].expect("waiting")
        backend.release(held, 5.0)
        tokens = []
        for waiter in waiters:
            tokens.append(waiter.granted()[0])
            waiter.tell("release")
        assert tokens == sorted(tokens)


def test_nothing_of_ours_stays_in_its_sessions(pooler: PgBouncer, server: PostgresServer) -> None:
    with opened(pooler.url()) as holder, opened(pooler.url()) as backend:
        held = take(holder, "job2")
        with backend.enqueue(request("job2", 30.0)) as ticket, never() as cancel:
            until = boottime() + 3.0
            while boottime() < until:
                assert ticket.poll() is None
                ticket.wait(10.0, cancel)
        with server.connect() as admin, opened(pooler.url()) as look:
            # Of whichever session answers: the pooler hands out the same few.
            for _ in range(10):
                rows = look.link.ask(
                    b"SELECT (SELECT count(*) FROM pg_listening_channels()),"
                    b" (SELECT count(*) FROM pg_prepared_statements), current_setting('synchronous_commit')",
                    look.clock() + 5,
                )
                assert rows == [("0", "0", "on")]
            assert admin.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
        holder.release(held, 5.0)


def test_a_waiter_comes_within_its_poll(pooler: PgBouncer) -> None:
    """Without notifications; about one request a second."""
    with opened(pooler.url()) as backend, opened(pooler.url()) as other:
        held = take(backend, "job3")
        with other.enqueue(request("job3", 30.0)) as ticket:
            assert ticket.poll() is None
            backend.release(held, 5.0)
            start = boottime()
            acquire(ticket)
            assert boottime() - start < 1.6


def test_killed_waiters_behind_it_cost_five_seconds_together(pooler: PgBouncer, server: PostgresServer) -> None:
    """The server does not see whether they live."""
    with opened(server.url) as backend, ExitStack() as stack:
        held = take(backend, "dead")
        for _ in range(3):
            waiter = stack.enter_context(Contender(pooler.url(), "dead"))
            waiter.expect("waiting")
            waiter.kill()
        backend.release(held, 5.0)
        start = boottime()
        assert try_once(backend, "dead") is None
        assert wait_until(lambda: try_once(backend, "dead"))
        assert 1.0 < boottime() - start < 5.0


def test_advisory_locks_are_refused(pooler: PgBouncer, server: PostgresServer) -> None:
    with opened(pooler.url("postgresql+advisory")) as backend:
        with pytest.raises(ConfigurationError, match="is a pooler"):
            take(backend, "job4")
        assert not backend.inspect("job4", 5.0).held
    with opened(server.advisory_url) as direct, opened(pooler.url("postgresql+advisory")) as backend:
        grant = take(direct, "job4")
        direct.close()
        with pytest.raises(ConfigurationError, match="is a pooler"):
            backend.renew(grant, 5.0)
    wait_until(lambda: server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [0])


def test_the_command_through_it(lab: Lab, server: PostgresServer) -> None:
    run = lab.start("--ttl", "3", "command", "--", "sh", "-c", "echo started; sleep 60")
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    until = boottime() + 7.0  # more than two TTLs
    while boottime() < until:
        assert lab.run("-n", "command", "--", "true").returncode == 75
    waiting = lab.start("command", "--", "true")
    run.terminate()
    run.wait(5)
    assert waiting.wait(5) == 0
    wait_until(lambda: left_behind(server) == NOTHING)
    advisory = lab.run("-b", lab.backend.replace("postgresql", "postgresql+advisory"), "command", "--", "true")
    assert advisory.returncode == 78
    assert advisory.stderr.decode().count("\n") == 1


def test_a_pooler_whose_sessions_are_ended(server: PostgresServer) -> None:
    with pgbouncer(server) as pooler, opened(pooler.url()) as backend:
        grant = take(backend, "job5")
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'distlock'")
        grant = backend.renew(grant, 5.0)
        backend.release(grant, 5.0)
