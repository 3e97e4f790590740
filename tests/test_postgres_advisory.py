"""Advisory locks: foreign clients, ended sessions, and the lease row that stays between our own holders."""

from __future__ import annotations

import hashlib
import select
import signal
from collections.abc import Iterator

import psycopg
import pytest

import postgres_fixtures
from contenders import Contender, acquire, request, take, try_once
from distlock.backends.base import LeaseLost, Unavailable
from distlock.backends.postgres_advisory import AdvisoryBackend, advisory_key
from distlock.clock import boottime
from postgres_fixtures import NOTHING, left_behind, opened
from postgres_servers import PostgresServer
from processes import wait_until

_END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'distlock'"


one_server = postgres_fixtures.one_server
server = postgres_fixtures.emptied_server


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.advisory_url


@pytest.fixture
def psql(server: PostgresServer) -> Iterator[psycopg.Connection]:
    with server.connect() as connection:
        yield connection


def _one(psql: psycopg.Connection, function: str, key: int) -> bool:
    row = psql.execute(f"SELECT {function}(%s::bigint)".encode(), [key]).fetchone()
    assert row
    return bool(row[0])


def test_the_key_is_the_documented_one() -> None:
    for name in ("nightly-job", "замок", "x" * 200):
        assert advisory_key(name) == int.from_bytes(hashlib.blake2b(name.encode()).digest()[:8], "big", signed=True)
    assert advisory_key("nightly-job") == -5801310059811923052


@pytest.mark.parametrize("name", ["job", "positive", "negative", "замок", "x" * 200])
def test_it_excludes_a_foreign_client(server: PostgresServer, url: str, psql: psycopg.Connection, name: str) -> None:
    key = advisory_key(name)
    with opened(url) as backend:
        grant = take(backend, name)
        assert not _one(psql, "pg_try_advisory_lock", key)
        assert str(key) in backend.places(name)[0]
        backend.renew(grant, 5.0)
        backend.release(grant, 5.0)
        assert _one(psql, "pg_try_advisory_lock", key)
        assert _one(psql, "pg_advisory_unlock", key)
    assert left_behind(server) == NOTHING


def test_it_is_excluded_by_a_foreign_client(url: str, psql: psycopg.Connection) -> None:
    key = advisory_key("job")
    with opened(url) as backend, opened(url) as other:
        backend.release(take(backend, "job"), 5.0)
        psql.execute("SELECT pg_advisory_lock(%s)", [key])
        assert try_once(backend, "job") is None
        state = backend.inspect("job", 5.0)
        assert (state.held, state.holder, state.token) == (True, None, None)
        assert next(other.locks(5.0)) == state
        assert backend.inspect("never seen", 5.0).held is False
        with other.enqueue(request("job", 30.0)) as ticket:
            assert ticket.poll() is None
            psql.execute("SELECT pg_advisory_unlock(%s)", [key])
            released = boottime()
            acquire(ticket)
            assert boottime() - released < 1.6
        assert not backend.inspect("another", 5.0).held


def test_a_name_never_seen_shows_its_foreign_holder(server: PostgresServer, url: str, psql: psycopg.Connection) -> None:
    with opened(url) as backend:
        backend.prepare(5.0)
        psql.execute("SELECT pg_advisory_lock(%s)", [advisory_key("job")])
        assert backend.inspect("job", 5.0).held
        server.sql("SELECT pg_advisory_lock_shared(1, 2)")  # keys of the other kind are other locks
        assert not backend.inspect("jobs", 5.0).held


def test_an_ended_session_is_told_at_once_and_loses_the_lease(server: PostgresServer, url: str) -> None:
    with opened(url) as backend, opened(url) as other:
        grant = backend.renew(take(backend, "job", ttl=3.0), 5.0)
        alarm = backend.alarm(grant)
        assert alarm is not None
        assert not select.select([alarm], [], [], 0)[0]
        server.sql(_END)
        assert select.select([alarm], [], [], 1.0)[0]
        with pytest.raises(LeaseLost, match="session that held its advisory lock has ended"):
            backend.renew(grant, 5.0)
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)
        # Ours still wait for the lease to run out: the command may be dying.
        with other.enqueue(request("job", 30.0)) as ticket:
            acquire(ticket)
            assert boottime() >= grant.valid_from + 3.0


def test_a_session_ended_between_two_renewals_is_seen_by_the_next(server: PostgresServer, url: str) -> None:
    """Though the connection would be made anew for everything else."""
    with opened(url) as backend:
        grant = take(backend, "job")
        server.sql(_END)
        assert backend.inspect("job", 5.0).held  # over a new connection
        with pytest.raises(LeaseLost, match="has ended"):
            backend.renew(grant, 5.0)


def test_a_crashed_holders_lease_is_waited_out(url: str) -> None:
    with Contender(url, "job", ttl=3.0) as crashing, opened(url) as backend:
        crashing.granted()
        at = boottime()
        crashing.kill()
        with backend.enqueue(request("job", 30.0)) as ticket:
            acquire(ticket)
            assert boottime() - at > 1.5


def test_a_frozen_holder_is_shown_out_when_its_lease_is_over(url: str) -> None:
    """Its session would keep the advisory lock for ever."""
    with Contender(url, "job", ttl=3.0) as frozen, opened(url) as backend:
        frozen.granted()
        frozen.signal(signal.SIGSTOP)
        at = boottime()
        with backend.enqueue(request("job", 30.0)) as ticket:
            acquire(ticket)
            assert boottime() - at < 4.5
        frozen.signal(signal.SIGCONT)
        frozen.expect("lost")


def test_a_foreign_session_is_never_shown_out(server: PostgresServer, url: str, psql: psycopg.Connection) -> None:
    """Neither beside a lease that ran out, nor if it has got the holder's pid since."""
    key = advisory_key("job")
    with opened(url) as backend, opened(url) as other:
        take(backend, "job", ttl=1.0)
        server.sql(_END)
        psql.execute("SELECT pg_advisory_lock(%s)", [key])
        for statement in (
            "SELECT 1",
            f"UPDATE distlock_lock SET backend = {psql.info.backend_pid}, expires_at = now() - interval '1 hour'",
            "UPDATE distlock_lock SET owner = NULL",
            "UPDATE distlock_lock SET backend = NULL",
        ):
            wait_until(lambda: server.sql("SELECT expires_at < clock_timestamp() FROM distlock_lock") == [True])
            server.sql(statement)
            assert try_once(other, "job") is None
        assert psql.execute("SELECT 1").fetchone() == (1,)


def test_a_session_of_another_role_is_not_ended(server: PostgresServer, url: str) -> None:
    """It may not be; the lock stays held until the server drops that session."""
    server.sql("DROP ROLE IF EXISTS job")
    server.role("job")
    with opened(url) as backend, opened(server.url_of("job", scheme="postgresql+advisory")) as other:
        take(backend, "job", ttl=1.0)
        server.sql("GRANT ALL ON distlock_lock, distlock_waiter, distlock_layout TO job")
        wait_until(lambda: server.sql("SELECT expires_at < clock_timestamp() FROM distlock_lock") == [True])
        with other.enqueue(request("job", 30.0)) as ticket:
            assert ticket.poll() is None
            server.sql(_END)
            acquire(ticket)
    server.sql("DROP OWNED BY job; DROP ROLE job")


def test_released_by_another_connection(server: PostgresServer, url: str) -> None:
    """The session that has the lock cannot be asked to give it up; it is ended after a second."""
    with opened(url) as backend, opened(url) as other, opened(url) as third:
        grant = take(backend, "job")
        other.release(grant, 5.0)
        assert not other.inspect("job", 5.0).held
        with third.enqueue(request("job", 30.0)) as ticket:
            released = boottime()
            acquire(ticket)
            assert 0.5 < boottime() - released < 3.0
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)
    wait_until(lambda: left_behind(server)["advisory"] == [])


def test_a_lease_is_renewed_from_elsewhere_while_its_session_has_the_lock(server: PostgresServer, url: str) -> None:
    """The session on record stays the holder's; when it has ended, whoever renews takes the lock up, or has lost it."""
    with opened(url) as backend, opened(url) as other, opened(url) as third, server.connect() as psql:
        grant = take(backend, "job")
        key, record = advisory_key("job"), "SELECT backend FROM distlock_lock"
        before = boottime()
        assert other.renew(grant, 5.0).valid_from >= before
        assert server.sql(record) == [backend.link.pid]
        backend.close()
        wait_until(lambda: _one(psql, "pg_try_advisory_lock", key))
        with pytest.raises(LeaseLost, match="went to somebody else"):
            other.renew(grant, 5.0)  # a foreign client has it
        assert _one(psql, "pg_advisory_unlock", key)
        third.renew(grant, 5.0)
        assert server.sql(record) == [third.link.pid]
        assert not _one(psql, "pg_try_advisory_lock", key)
        third.release(grant, 5.0)
        assert _one(psql, "pg_try_advisory_lock", key)


def test_leases_of_both_engines_exclude_each_other(server: PostgresServer, url: str) -> None:
    with opened(url) as backend, opened(server.url) as plain:
        grant = take(plain, "job")
        assert try_once(backend, "job") is None
        plain.release(grant, 5.0)
        later = take(backend, "job")
        assert try_once(plain, "job") is None
        assert (later.token or 0) > (grant.token or 0)
        backend.release(later, 5.0)


def test_two_names_with_one_key_share_no_lock(server: PostgresServer, url: str) -> None:
    """Nobody can make such names; a row says that there was one."""
    with opened(url) as backend:
        backend.prepare(5.0)
        server.sql("INSERT INTO distlock_lock (name, token, advisory_key) VALUES ('\\x61', 1, %s)", advisory_key("job"))
        with pytest.raises(Unavailable, match="same 64-bit key") as caught:
            take(backend, "job")
        assert caught.value.permanent
        assert not backend.inspect("job", 5.0).held
    assert left_behind(server) == NOTHING


def test_a_slow_answer_does_not_end_the_session(server: PostgresServer, url: str) -> None:
    """A renewal that is not answered in time is tried again, in the same session."""
    with opened(url) as backend:
        assert isinstance(backend, AdvisoryBackend)
        grant = take(backend, "job")
        session = backend.link.session
        server.freeze()
        try:
            for _ in range(2):
                with pytest.raises(Unavailable, match="does not answer"):
                    backend.renew(grant, 0.3)
        finally:
            server.thaw()
        before = boottime()
        grant = backend.renew(grant, 5.0)
        assert grant.valid_from >= before
        assert backend.link.session == session
        backend.release(grant, 5.0)
    wait_until(lambda: left_behind(server) == NOTHING)


@pytest.mark.parametrize("holders", [1, 2])
def test_the_end_of_a_session_that_does_not_have_the_lock_loses_no_lease(server: PostgresServer, holders: int) -> None:
    """Of a backend that renews for another one, and had its session ended while it had something else."""
    with opened(server.advisory_url) as backend, opened(server.advisory_url) as other:
        take(other, "another")
        grant = take(backend, "job", holders=holders)
        assert backend.revoke("another", _token(server, "another"), None, "al", 5.0, now=True)
        other.renew(grant, 5.0)
        backend.renew(grant, 5.0)


def _token(server: PostgresServer, name: str) -> int:
    (token,) = server.sql("SELECT token FROM distlock_lock WHERE name = %s", name.encode())
    return int(token)
