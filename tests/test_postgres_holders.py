"""Several holders of one PostgreSQL lock: beside plain locks, older tables and programs, poolers, foreign clients."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import postgres_fixtures
from contenders import Contender, acquire, request, take, try_once
from distlock.backends.base import LeaseLost, OtherHolders, Refused
from distlock.backends.postgres_advisory import advisory_key
from distlock.clock import boottime
from postgres_fixtures import NOTHING, left_behind, opened
from postgres_servers import PostgresServer, pgbouncer, postgres
from processes import wait_until


@pytest.fixture(scope="module")
def one_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        server.role("job")
        server.role("strict")
        server.sql("ALTER ROLE strict SET default_transaction_isolation = 'repeatable read'")
        yield server


server = postgres_fixtures.emptied_server


def _contend(urls: list[str], turns: int) -> None:
    """Threads that all want one of three places: never four inside, nobody's index twice, and nobody who waits for
    longer than it takes, as one would whose wake-up was lost."""
    inside: dict[int, int] = {}
    guard = threading.Lock()
    tokens: list[int] = []
    problems: list[BaseException] = []

    def work(number: int, url: str) -> None:
        try:
            with opened(url) as backend:
                for turn in range(turns):
                    with backend.enqueue(request("job", 30.0, holders=3)) as ticket:
                        grant = ticket.poll() if (number + turn) % 5 == 0 else acquire(ticket, 60.0)
                    if grant is None:
                        continue
                    with guard:
                        assert grant.holder_index not in inside
                        inside[grant.holder_index] = number
                        tokens.append(grant.token or 0)
                    grant = backend.renew(grant, 5.0)
                    with guard:
                        del inside[grant.holder_index]
                    backend.release(grant, 5.0)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number, url)) for number, url in enumerate(urls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert problems == []
    assert len(tokens) == len(set(tokens))


def _nothing_is_left(server: PostgresServer) -> None:
    assert server.sql("SELECT name FROM distlock_holder") == []
    wait_until(lambda: left_behind(server) == NOTHING)


def test_many_at_once_are_never_more_than_may(server: PostgresServer) -> None:
    _contend([server.url] * 8, 12)
    _nothing_is_left(server)


def test_many_at_once_on_advisory_locks(server: PostgresServer) -> None:
    _contend([server.advisory_url] * 6, 8)
    _nothing_is_left(server)


def test_sessions_that_read_as_of_their_beginning(server: PostgresServer) -> None:
    with opened(server.url) as admin:
        admin.prepare(5.0)
    server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO strict")
    _contend([server.url_of("strict")] * 6, 8)
    _nothing_is_left(server)


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_behind_a_pooler(server: PostgresServer, mode: str) -> None:
    with pgbouncer(server, mode, size=4) as pooler:
        _contend([pooler.url(), server.url] * 2, 4)
    _nothing_is_left(server)


def test_an_answer_that_was_lost_is_given_again(server: PostgresServer) -> None:
    with opened(server.url) as backend, opened(server.url) as other:
        take(backend, "job", holders=3)
        asked = request("job", 30.0, holders=3)
        first = backend.attempt(asked, "0", 5.0, hopeful=False)
        again = other.attempt(asked, "0", 5.0, hopeful=False)
        assert (first[0], first[3], first[11]) == (again[0], again[3], again[11]) == ("granted", first[3], "1")
        assert server.sql("SELECT count(*) FROM distlock_holder") == [2]


def test_to_earlier_programs_it_is_held_until_the_longest_lease_is_over(server: PostgresServer) -> None:
    """They read its row only."""
    row = """SELECT owner IS NOT NULL AND expires_at >= (SELECT max(expires_at) FROM distlock_holder)
        FROM distlock_lock WHERE name = 'job'"""
    with opened(server.url) as backend:
        long, short = take(backend, "job", 60.0, holders=2), take(backend, "job", 5.0, holders=2)
        assert server.sql(row) == [True]
        backend.renew(short, 5.0)
        assert server.sql(row) == [True]
        backend.release(long, 5.0)
        assert server.sql(row) == [True]
        assert server.sql("SELECT expires_at < now() + interval '6 s' FROM distlock_lock") == [True]
        backend.release(short, 5.0)
        assert server.sql("SELECT owner FROM distlock_lock WHERE name = 'job'") == [None]


def test_one_release_wakes_all_who_may_come(server: PostgresServer) -> None:
    """Of a plain lock, with several places for those who wait."""
    with opened(server.url) as backend, ExitStack() as stack:
        held = take(backend, "job")
        waiting = [request("job", 30.0, holders=3) for _ in range(4)]
        backends = [stack.enter_context(opened(server.url)) for _ in waiting]
        with pytest.raises(OtherHolders):
            try_once(backends[0], "job", holders=3)
        backend.release(held, 5.0)
        first = take(backend, "job", holders=1)
        # Who waits for a lock that is free has not been refused: as between the release and the grant.
        server.sql("UPDATE distlock_lock SET owner = NULL, expires_at = now()")
        take(backend, "job", holders=3)
        taken = [take(backend, "job", holders=3) for _ in range(2)]
        served = []
        for one, ask in zip(backends[:3], waiting, strict=False):
            ticket = stack.enter_context(one.enqueue(ask))
            assert ticket.poll() is None
            served.append(ticket)
        start = boottime()
        server.sql("DELETE FROM distlock_holder WHERE index = 0")  # two places for one who is woken
        backend.release(taken[0], 5.0)
        threads = [threading.Thread(target=acquire, args=(ticket,)) for ticket in served[:2]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
        assert boottime() - start < 0.9
        assert {holding.holder_index for holding in backend.inspect("job", 5.0).holdings} == {0, 1, 2}
        with pytest.raises(LeaseLost):
            backend.renew(first, 5.0)


def test_the_tables_of_an_earlier_version(server: PostgresServer) -> None:
    """By a role that may not add to them: plain locks go on, and several holders are refused with the way out."""
    with opened(server.url) as admin, opened(server.url_of("job")) as backend:
        admin.prepare(5.0)
        server.sql("DROP TABLE distlock_holder; ALTER TABLE distlock_fence DROP COLUMN used_at")
        server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO job")
        grant = take(backend, "job")
        backend.renew(grant, 5.0)
        assert backend.inspect("job", 5.0).held
        assert [state.name for state in backend.locks(5.0)] == ["job"]
        assert try_once(backend, "job") is None
        assert not backend.revoke("job", 1, None, "al", 5.0, now=False)
        backend.release(grant, 5.0)
        assert backend.advance_fence("disk", 0, 7, 5.0) == 7
        assert list(backend.purge(lambda _: True, 0.0, 5.0, fences=True)) == []
        assert list(backend.purge(lambda _: True, 0.0, 5.0)) == ["job"]
        with pytest.raises(Refused, match=r"permission denied for schema public.*`distlock init`"):
            take(backend, "job", holders=2)
        assert take(backend, "job")
        assert admin.prepare(5.0)
        # Whoever had a right on waiters has it on holders.
        assert take(backend, "another", holders=2).holders == 2
        assert backend.advance_fence("disk", 0, 8, 5.0) == 8
        assert list(backend.purge(lambda _: True, 0.0, 5.0, fences=True)) == ["disk"]


def test_rights_that_only_several_holders_take(server: PostgresServer) -> None:
    with opened(server.url) as admin, opened(server.url_of("job")) as backend:
        admin.prepare(5.0)
        server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO job")
        assert len(backend.prepare(5.0)) == 1
        server.sql("REVOKE ALL ON distlock_holder FROM job")
        assert "--max-holders" in backend.prepare(5.0)[1]
        backend.release(take(backend, "job"), 5.0)
        with pytest.raises(Refused, match="permission denied for table distlock_holder"):
            take(backend, "job", holders=2)


def test_a_holder_hears_that_its_place_went_to_somebody_else(server: PostgresServer) -> None:
    with opened(server.url) as backend, opened(server.url) as other:
        grant = backend.renew(take(backend, "job", holders=2), 5.0)
        stays = take(other, "job", holders=2)
        alarm = backend.alarm(grant)
        server.sql("UPDATE distlock_holder SET expires_at = now() WHERE index = 0")
        assert take(other, "job", holders=2).holder_index == 0
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)
        assert alarm is not None
        other.renew(stays, 5.0)


def test_foreign_clients_and_several_holders_exclude_each_other(server: PostgresServer) -> None:
    key = advisory_key("job")
    with opened(server.advisory_url) as backend, opened(server.advisory_url) as other, server.connect() as psql:

        def tried() -> bool:
            (got,) = psql.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone() or (None,)
            return bool(got)

        grants = [take(backend, "job", holders=3), take(other, "job", holders=3), take(backend, "job", holders=3)]
        assert not tried()
        for grant, holder in zip(grants, (backend, other, backend), strict=True):
            assert not tried()
            holder.release(grant, 5.0)
        assert tried()
        for one in backend, other:
            assert try_once(one, "job", holders=3) is None
        assert backend.inspect("job", 5.0).held
        psql.execute("SELECT pg_advisory_unlock(%s)", [key])
        assert take(other, "job", holders=3, seconds=3.0)
        assert not tried()


def test_the_end_of_a_session_loses_its_place_and_no_other(server: PostgresServer) -> None:
    with opened(server.advisory_url) as backend, opened(server.advisory_url) as other:
        gone, stays = take(backend, "job", holders=2), take(other, "job", holders=2)
        server.sql("SELECT pg_terminate_backend(backend) FROM distlock_holder WHERE owner = %s", gone.owner)
        with pytest.raises(LeaseLost, match="session"):
            backend.renew(gone, 5.0)
        other.renew(stays, 5.0)


def test_frozen_holders_stand_in_a_plain_locks_way_until_their_leases_are_over(server: PostgresServer) -> None:
    """Their sessions have the key still, and are ended."""
    with ExitStack() as stack, opened(server.advisory_url) as backend:
        frozen = [
            stack.enter_context(Contender(server.advisory_url, "job", "--holders=3", ttl=2.0, owner=f"frozen{n}"))
            for n in range(2)
        ]
        for holder in frozen:
            holder.granted()
        for holder in frozen:
            holder.signal(signal.SIGSTOP)
        grant = None
        until = boottime() + 10.0
        while grant is None and boottime() < until:
            try:
                with backend.enqueue(request("job", 30.0)) as ticket:
                    grant = acquire(ticket, 5.0)
            except OtherHolders:
                continue
        assert grant is not None
        assert grant.holders == 1
        for holder in frozen:
            holder.signal(signal.SIGCONT)
            holder.expect("lost")
        backend.renew(grant, 5.0)
