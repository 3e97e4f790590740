"""Tables made on first use or by init, the fewest rights that will do, layouts, and what settings are told of."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import postgres_fixtures
from contenders import request, take, try_once
from distlock.backends.base import LeaseLost, Mark, Refused, Unavailable, Unmarked
from postgres_fixtures import opened, owner
from postgres_servers import PostgresServer, postgres, standby
from processes import wait_until

LEAST = """
    GRANT SELECT ON public.distlock_layout TO job;
    GRANT SELECT, INSERT, UPDATE ON public.distlock_lock TO job;
    GRANT SELECT, INSERT, UPDATE, DELETE ON public.distlock_waiter TO job;
    GRANT SELECT, INSERT, UPDATE, DELETE ON public.distlock_mark TO job;
"""


@pytest.fixture(scope="module")
def one_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        server.role("job")
        server.role("other")
        yield server


server = postgres_fixtures.emptied_server


@pytest.fixture
def job(server: PostgresServer) -> str:
    return server.url_of("job")


def test_first_users_at_once_all_succeed(server: PostgresServer) -> None:
    problems: list[BaseException] = []
    ready = threading.Barrier(8)

    def use(number: int) -> None:
        try:
            with opened(server.url) as backend:
                backend.link.connect(backend.clock() + 5)
                ready.wait(10)
                grant = take(backend, f"job {number % 3}")
                backend.release(grant, 5.0)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            problems.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert server.sql("SELECT version FROM distlock_layout") == [1]
    assert server.sql("SELECT count(*) FROM distlock_lock") == [3]


def test_looking_makes_nothing(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        assert not backend.inspect("job", 5.0).held
        assert list(backend.locks(5.0)) == []
    assert server.sql("SELECT to_regclass('public.distlock_lock')") == [None]


def test_a_role_that_may_make_no_tables_is_told_the_way_out(server: PostgresServer, job: str) -> None:
    with opened(job) as backend:
        with pytest.raises(Refused, match=r"permission denied for schema public.*distlock init"):
            take(backend, "job")
        with pytest.raises(Refused, match="distlock init"):
            backend.prepare(5.0)
    assert server.sql("SELECT to_regclass('public.distlock_lock')") == [None]


def test_the_fewest_rights_that_will_do(server: PostgresServer, job: str) -> None:
    """As documented: everything goes with them, and nothing without one of them."""
    with opened(server.url) as admin, opened(job) as backend, opened(server.url) as other:
        assert admin.prepare(5.0)
        with pytest.raises(Refused, match=r"may not SELECT on distlock_layout, .*DELETE on distlock_mark"):
            backend.prepare(5.0)
        server.sql(LEAST)
        assert backend.prepare(5.0)
        held = take(other, "job")
        assert try_once(backend, "job") is None
        other.release(held, 5.0)
        grant = take(backend, "job")
        backend.renew(grant, 5.0)
        assert backend.inspect("job", 5.0).held
        assert [state.name for state in backend.locks(5.0)] == ["job"]
        assert isinstance(backend.shortcomings(5.0), tuple)
        backend.mark(grant, Mark("x", 0.0, 60.0), 5.0)
        backend.release(grant, 5.0, (Mark("y", 0.0, 60.0),), 1.0)
        assert backend.marked("job", "y", 5.0)
        assert backend.revoke("job", grant.token, None, "alice", 5.0, now=False)
        for right in [line.strip() for line in LEAST.strip().splitlines()]:
            server.sql(right.replace("GRANT", "REVOKE").replace(" TO ", " FROM "))
            with pytest.raises((Refused, Unmarked), match="does not allow it: permission denied for table"):
                backend.release(take(backend, "job"), 5.0, (Mark("x", 0.0, 60.0),))
            server.sql(right)


def test_reading_is_enough_to_look(server: PostgresServer, job: str) -> None:
    with opened(server.url) as backend, opened(job) as reader:
        grant = take(backend, "job")
        with backend.enqueue(request("job", 30.0)) as ticket:
            assert ticket.poll() is None
            server.sql("GRANT SELECT ON distlock_layout, distlock_lock, distlock_waiter TO job")
            (state,) = reader.locks(5.0)
            assert state.holder
            assert (state.holder.owner, len(state.waiters)) == (grant.owner, 1)
        with pytest.raises(Refused, match="does not allow it"):
            take(reader, "job")


def test_init_twice_does_no_harm(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        first = backend.prepare(5.0)
        grant = take(backend, "job")
        assert backend.prepare(5.0) == first
        backend.renew(grant, 5.0)


@pytest.mark.parametrize("version", ["UPDATE distlock_layout SET version = 2", "DELETE FROM distlock_layout"])
def test_an_unknown_layout_is_never_free(server: PostgresServer, version: str) -> None:
    with opened(server.url) as backend, opened(server.url) as other:
        grant = take(backend, "job")
        server.sql(version)
        for step in (
            lambda: take(other, "job"),
            lambda: take(other, "another"),
            lambda: other.inspect("job", 5.0),
            lambda: list(other.locks(5.0)),
            lambda: backend.renew(grant, 5.0),
            lambda: backend.release(grant, 5.0),
        ):
            with pytest.raises(Unavailable, match=r"version.*layout that this program does not know") as caught:
                step()
            assert caught.value.permanent
        assert owner(server) == grant.owner


def test_tables_that_are_something_else(server: PostgresServer) -> None:
    server.sql("CREATE TABLE public.distlock_layout (version integer); INSERT INTO public.distlock_layout VALUES (1)")
    server.sql("CREATE TABLE public.distlock_lock (name text)")
    with opened(server.url) as backend, pytest.raises(Unavailable, match="tables that this program does not know"):
        take(backend, "job")


def test_tables_removed_from_under_a_lease(server: PostgresServer) -> None:
    """The lease is lost; whoever comes next gets a greater token."""
    with opened(server.url) as backend:
        grant = take(backend, "job")
        server.forget()
        with pytest.raises(LeaseLost, match="its table was removed"):
            backend.renew(grant, 5.0)
        backend.release(grant, 5.0)
        assert (take(backend, "job").token or 0) > (grant.token or 0)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_names_in_databases_of_another_encoding(server: PostgresServer, encoding: str) -> None:
    database = f"in_{encoding.lower()}"
    server.sql(f"CREATE DATABASE {database} ENCODING '{encoding}' TEMPLATE template0")
    with opened(server.url_of("postgres", database)) as backend:
        for name in ("замок", "é", "e\u0301", "鍵", "🔒", "'; --"):
            grant = take(backend, name)
            assert backend.inspect(name, 5.0).name == name
            backend.release(grant, 5.0)


@pytest.mark.parametrize(
    "setting",
    [
        "search_path = nowhere",
        "standard_conforming_strings = off",
        "default_transaction_isolation = serializable",
        "default_transaction_isolation = 'repeatable read'",
        "datestyle = 'German, DMY'",
        "intervalstyle = sql_standard",
        "bytea_output = escape",
        "extra_float_digits = -5",
        "timezone = 'Asia/Kathmandu'",
    ],
)
def test_settings_of_a_role_change_nothing(server: PostgresServer, setting: str) -> None:
    server.sql(f"ALTER ROLE other SET {setting}")
    try:
        with opened(server.url) as backend, opened(server.url_of("other")) as other:
            backend.prepare(5.0)
            server.sql(LEAST.replace("TO job", "TO other"))
            grant = take(other, "it's a \\ job", ttl=20.0)
            other.renew(grant, 5.0)
            assert try_once(backend, "it's a \\ job") is None
            state = backend.inspect("it's a \\ job", 5.0)
            assert (state.ttl, state.holder and state.holder.owner) == (20.0, grant.owner)
            assert other.inspect("it's a \\ job", 5.0)._replace(expires_in=0) == state._replace(expires_in=0)
            other.release(grant, 5.0)
    finally:
        server.sql("ALTER ROLE other RESET ALL")


def test_a_grant_waits_for_the_disk_whatever_the_database_says() -> None:
    """With synchronous_commit off a crash forgets the last grants; ours are there."""
    options = {"fsync": "on", "synchronous_commit": "off", "wal_writer_delay": "10s"}
    with postgres(options) as server:
        with opened(server.url) as backend:
            backend.release(take(backend, "released before"), 5.0)
        for name in ("released before", "never seen"):
            with opened(server.url) as backend:
                token = take(backend, name).token
                server.crash()
                server.start()
                state = backend.inspect(name, 5.0)
                assert (state.held, state.token) == (True, token)
        with opened(server.url) as backend:
            grant = take(backend, "renewed", ttl=4.0)
            server.sql("CREATE TABLE forgotten ()")
            backend.renew(grant._replace(ttl=600.0), 5.0)
            server.crash()
            server.start()
            assert (backend.inspect("renewed", 5.0).expires_in or 0) > 500


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fsync": "on"}, []),
        ({"fsync": "off"}, ["fsync is off"]),
        ({"fsync": "on", "full_page_writes": "off"}, ["full_page_writes is off"]),
        ({"fsync": "on", "synchronous_commit": "off"}, []),
    ],
)
def test_shortcomings_of_settings(options: dict[str, str], words: list[str]) -> None:
    with postgres(options) as server, opened(server.url) as backend:
        found = backend.shortcomings(5.0)
        assert len(found) == len(words)
        assert all(said.startswith(word) for said, word in zip(found, words, strict=True))


def test_shortcomings_of_standbys_and_tables() -> None:
    with postgres({"fsync": "on"}) as server, standby(server):
        server.role("job")
        with opened(server.url) as backend, opened(server.url_of("job")) as unprivileged:
            expected = ("asynchronous standbys (standby), so a failover can forget who holds a lock",)
            assert backend.shortcomings(5.0) == expected
            assert "asynchronous standbys" in unprivileged.shortcomings(5.0)[0]
            server.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            server.sql("SELECT pg_reload_conf()")

            def is_synchronous() -> bool:
                return server.sql("SELECT sync_state FROM pg_stat_replication") == ["sync"]

            wait_until(is_synchronous)
            assert backend.shortcomings(5.0) == ()
            assert "GRANT pg_monitor" in unprivileged.shortcomings(5.0)[0]
            server.sql("GRANT pg_monitor TO job")
            with opened(server.url_of("job")) as allowed:
                assert allowed.shortcomings(5.0) == ()
            backend.prepare(5.0)
            server.sql("ALTER TABLE distlock_lock SET UNLOGGED")
            assert backend.shortcomings(5.0) == ("a table distlock_* is not logged, so a crash empties it",)


def test_a_standby_answers_questions_and_grants_nothing() -> None:
    with postgres() as server, opened(server.url) as backend:
        grant = take(backend, "job")
        with standby(server) as copy, opened(copy.url) as there:
            assert there.inspect("job", 5.0).held
            with pytest.raises(Unavailable, match="is read-only: a standby"):
                take(there, "other")
            both = f"postgresql://postgres@{copy.place},{server.place}/postgres"
            with opened(both) as either:
                other = take(either, "other")
                either.release(other, 5.0)
            backend.release(grant, 5.0)
