"""An advisory lock that an operator frees at once: the session that has it is ended, as far as rights go."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from contenders import Contender, acquire, request, take, try_once
from distlock.backends.base import LeaseLost, Refused, Revoked
from distlock.clock import boottime
from postgres_fixtures import NOTHING, left_behind, opened
from postgres_servers import PostgresServer, postgres
from processes import wait_until

BY = "alice@ops1"


@pytest.fixture(scope="module")
def one_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        server.role("job")
        server.role("operator")
        yield server


@pytest.fixture
def server(one_server: PostgresServer) -> PostgresServer:
    one_server.forget()
    with opened(one_server.url) as backend:
        backend.prepare(5.0)
    one_server.sql("GRANT ALL ON distlock_layout, distlock_lock, distlock_waiter, distlock_mark TO job, operator")
    return one_server


def url_of(server: PostgresServer, role: str) -> str:
    return server.url_of(role, scheme="postgresql+advisory")


def test_the_session_of_a_frozen_holder_is_ended(server: PostgresServer) -> None:
    url = url_of(server, "job")
    with Contender(url, "job") as frozen, opened(url) as backend, opened(url) as other:
        token, _ = frozen.granted()
        frozen.signal(signal.SIGSTOP)
        with other.enqueue(request("job", 30.0)) as ticket:
            assert ticket.poll() is None
            asked = boottime()
            assert backend.revoke("job", token, None, BY, 5.0, now=True)
            acquire(ticket)
            assert boottime() - asked < 1.0  # woken, and not by looking again
        frozen.signal(signal.SIGCONT)
        frozen.expect("lost")


@pytest.mark.parametrize(
    "right",
    ["GRANT job TO operator", "GRANT pg_signal_backend, pg_read_all_stats TO operator"],
    ids=["member", "signal"],
)
def test_rights_to_end_it(server: PostgresServer, right: str) -> None:
    """Without them nothing is done, and the line says so; a lease is taken away without --now all the same."""
    with opened(url_of(server, "job")) as holder, opened(url_of(server, "operator")) as operator:
        grant = take(holder, "job")
        with pytest.raises(Refused, match=r"session \(pid \d+\) which this role may not end: nothing was done"):
            operator.revoke("job", grant.token, None, BY, 5.0, now=True)
        grant = holder.renew(grant, 5.0)
        assert operator.revoke("job", grant.token, None, BY, 5.0, now=False)
        with pytest.raises(Revoked):
            holder.renew(grant, 5.0)
        server.sql(right)
        try:
            assert operator.revoke("job", grant.token, None, BY, 5.0, now=True)
            with pytest.raises(LeaseLost, match="session"):
                holder.renew(grant, 5.0)
            assert try_once(operator, "job")
        finally:
            server.sql(right.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))


def test_a_superuser_s_session_is_ended_by_no_other_role(server: PostgresServer) -> None:
    server.sql("GRANT pg_signal_backend, pg_read_all_stats TO operator")
    try:
        with opened(server.advisory_url) as holder, opened(url_of(server, "operator")) as operator:
            grant = take(holder, "job")
            with pytest.raises(Refused, match="may not end"):
                operator.revoke("job", grant.token, None, BY, 5.0, now=True)
            holder.renew(grant, 5.0)
            holder.release(grant, 5.0)
    finally:
        server.sql("REVOKE pg_signal_backend, pg_read_all_stats FROM operator")


def test_in_the_holders_own_session(server: PostgresServer) -> None:
    with opened(url_of(server, "job")) as backend, opened(url_of(server, "job")) as other:
        grant = take(backend, "job")
        session = backend.link.session
        assert backend.revoke("job", grant.token, None, BY, 5.0, now=True)
        assert left_behind(server) == NOTHING
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)
        assert backend.link.session == session
        assert try_once(other, "job")


def test_a_foreign_session_is_not_ended(server: PostgresServer) -> None:
    """The holder's has ended, and its pid is that of a foreign client by now, which waited for the lock and has it."""
    url = url_of(server, "job")
    with opened(url) as backend, opened(url) as other, server.connect("job") as psql:
        grant = take(backend, "job")
        backend.close()
        key = backend.places("job")[0].partition("(")[2].rstrip(")")
        psql.execute(f"SELECT pg_advisory_lock({key})".encode())
        server.sql("UPDATE distlock_lock SET backend = %s, expires_at = now() + interval '50 s'", psql.info.backend_pid)
        server.sql("UPDATE distlock_lock SET ttl = 3600")  # so that it was granted before that session began
        assert other.revoke("job", grant.token, None, BY, 5.0, now=True)
        assert psql.execute(b"SELECT 1").fetchone() == (1,)
        assert try_once(other, "job") is None
    wait_until(lambda: left_behind(server)["advisory"] == [])


def test_a_lease_without_a_session_is_freed(server: PostgresServer) -> None:
    """Of the other engine, or of a holder that crashed."""
    with opened(server.url) as plain, opened(url_of(server, "operator")) as operator:
        grant = take(plain, "job")
        assert operator.revoke("job", grant.token, None, BY, 5.0, now=True)
        with pytest.raises(LeaseLost):
            plain.renew(grant, 5.0)
        with opened(url_of(server, "job")) as crashed:
            grant = take(crashed, "job", ttl=60.0)
        wait_until(lambda: left_behind(server)["advisory"] == [])
        assert operator.revoke("job", grant.token, None, BY, 5.0, now=True)
        assert try_once(operator, "job")
