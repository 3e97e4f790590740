"""What is forgotten in PostgreSQL, and the floor that stays."""

from __future__ import annotations

import threading

import pytest

import postgres_fixtures
from contenders import take
from distlock.backends.base import Refused
from postgres_fixtures import opened
from postgres_servers import PostgresServer
from processes import wait_until

one_server = postgres_fixtures.one_server_with_a_role
server = postgres_fixtures.emptied_server


def test_the_floor_is_above_the_clock(server: PostgresServer) -> None:
    """As after the server's clock was set back: tokens go on from the greatest that was ever removed."""
    ahead = 9_000_000_000_000_000
    with opened(server.url) as backend:
        for name, token in ("job", ahead), ("other", 5):
            backend.release(take(backend, name), 5.0)
            server.sql("UPDATE distlock_lock SET token = %s WHERE name = %s", token, name.encode())
        assert sorted(backend.purge(lambda _: True, 0.0, 5.0)) == ["job", "other"]
        assert [state.name for state in backend.locks(5.0)] == []
        for holders in 1, 2:
            assert (take(backend, f"job {holders}", holders=holders).token or 0) > ahead
        assert list(backend.purge(lambda _: True, 0.0, 5.0)) == []
        assert server.sql("SELECT token FROM distlock_lock WHERE name = ''") == [ahead]


def test_ten_thousand_in_pages(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        backend.prepare(5.0)
        server.sql(
            "INSERT INTO distlock_lock (name, token, expires_at)"
            " SELECT convert_to('job ' || n, 'UTF8'), n, now() FROM generate_series(1, 10000) AS n"
        )
        asked = 0
        ask = backend.link.ask

        def counting(statement: bytes, until: float, channel: str | None = None) -> list[tuple[str | None, ...]]:
            nonlocal asked
            asked += 1
            assert len(statement) < 50_000
            return ask(statement, until, channel)

        backend.link.ask = counting  # type: ignore[method-assign]
        assert len(set(backend.purge(lambda name: not name.endswith("7"), 0.0, 5.0))) == 9000
        assert asked < 50
        assert server.sql("SELECT count(*) FROM distlock_lock WHERE name <> ''") == [1000]


def test_a_purge_and_those_who_lock_at_once(server: PostgresServer) -> None:
    """Every grant's token is greater than the one before, however often the record is forgotten in between; also with
    tokens that the clock has not reached."""
    with opened(server.url) as backend:
        backend.release(take(backend, "job"), 5.0)
    server.sql("UPDATE distlock_lock SET token = 9000000000000000")
    tokens: list[int] = []
    inside: list[int] = []
    purged: list[str] = []
    problems: list[BaseException] = []
    done = threading.Event()

    def work(number: int) -> None:
        try:
            with opened(server.url) as backend:
                for _ in range(25):
                    grant = take(backend, "job")
                    inside.append(number)
                    assert inside == [number]
                    tokens.append(grant.token or 0)
                    inside.remove(number)
                    backend.release(grant, 5.0)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            problems.append(error)

    def forget() -> None:
        try:
            with opened(server.url) as backend:
                while not done.is_set():
                    purged.extend(backend.purge(lambda _: True, 0.0, 5.0))
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            problems.append(error)

    purger = threading.Thread(target=forget)
    purger.start()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    done.set()
    purger.join(10)
    assert problems == []
    assert tokens == sorted(set(tokens))
    assert len(tokens) == 75
    assert purged


def test_a_role_that_may_delete_nothing_is_told(server: PostgresServer) -> None:
    with opened(server.url) as admin, opened(server.url_of("job")) as backend:
        admin.release(take(admin, "job"), 5.0)
        server.sql("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO job")
        with pytest.raises(Refused, match="permission denied for table distlock_"):
            list(backend.purge(lambda _: True, 0.0, 5.0))
        assert [state.name for state in admin.locks(5.0)] == ["job"]


def test_nothing_to_forget_where_there_are_no_tables(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        assert list(backend.purge(lambda _: True, 0.0, 5.0)) == []
        assert list(backend.purge(lambda _: True, 0.0, 5.0, fences=True)) == []
    assert server.sql("SELECT to_regclass('public.distlock_lock')") == [None]


def test_a_session_that_still_shares_an_advisory_lock_keeps_the_record(server: PostgresServer) -> None:
    """Its lease is over, but it is what says whose session is in the way."""
    with opened(server.advisory_url) as frozen, opened(server.advisory_url) as other:
        take(frozen, "job", 1.0, holders=2)
        wait_until(lambda: not other.inspect("job", 5.0).held)
        assert list(other.purge(lambda _: True, 0.0, 5.0)) == []
        assert take(other, "job", seconds=5.0).holders == 1
