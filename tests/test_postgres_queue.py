"""What the queue in PostgreSQL promises beyond the contract: the dead, the frozen, the late, and what it costs."""

from __future__ import annotations

import select
import signal
import threading
from contextlib import ExitStack
from functools import partial

import pytest

import postgres_fixtures
from contenders import Contender, acquire, request, take, try_once
from distlock.backends import postgres_sql as sql
from distlock.backends.base import LeaseLost, Unavailable
from distlock.clock import boottime
from postgres_fixtures import NOTHING, left_behind, opened, waiters
from postgres_servers import PostgresServer
from processes import wait_until

one_server = postgres_fixtures.one_server
server = postgres_fixtures.emptied_server


def test_frozen_waiters_cost_five_seconds_together(server: PostgresServer) -> None:
    with opened(server.url) as backend, ExitStack() as stack:
        held = take(backend, "job")
        frozen = [stack.enter_context(Contender(server.url, "job")) for _ in range(3)]
        for waiter in frozen:
            waiter.expect("waiting")
        last = stack.enter_context(Contender(server.url, "job"))
        last.expect("waiting")
        for waiter in frozen:
            waiter.signal(signal.SIGSTOP)
        backend.release(held, 5.0)
        start = boottime()
        _, granted = last.granted()
        assert granted - start < 5.5
        for waiter in frozen:
            waiter.signal(signal.SIGCONT)
        wait_until(lambda: waiters(server) == 3)
        last.tell("release")
        for waiter in frozen:  # each at its old place
            waiter.granted()
            waiter.tell("release")


def test_a_waiter_that_was_dropped_gets_its_place_back(server: PostgresServer) -> None:
    with opened(server.url) as backend, opened(server.url) as other, ExitStack() as stack:
        held = take(backend, "job")
        first = stack.enter_context(other.enqueue(request("job", 30.0)))
        assert first.poll() is None
        second = stack.enter_context(backend.enqueue(request("job", 30.0)))
        assert second.poll() is None
        server.sql("DELETE FROM distlock_waiter WHERE place = (SELECT min(place) FROM distlock_waiter)")
        assert first.poll() is None
        backend.release(held, 5.0)
        assert second.poll() is None
        assert first.poll()


def test_the_dead_do_not_pile_up_behind_a_lock_that_is_held(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        take(backend, "held for weeks")
        take(backend, "another")
        for number in range(3):
            server.sql(
                "INSERT INTO distlock_waiter VALUES ('\\x61', %s, 1, now() - interval '1 min', 'c', NULL, '{}')",
                str(number),
            )
        with backend.enqueue(request("held for weeks", 30.0)) as ticket:
            assert ticket.poll() is None
            assert waiters(server, "a") == 0
            assert waiters(server, "held for weeks") == 1


def test_a_stamp_of_the_future_is_no_life(server: PostgresServer) -> None:
    """The server's clock was set back since."""
    with opened(server.url) as backend, opened(server.url) as other:
        held = take(backend, "job")
        with other.enqueue(request("job", 30.0)) as ticket:
            assert ticket.poll() is None
            server.sql("UPDATE distlock_waiter SET seen_at = now() + interval '1 hour'")
            backend.release(held, 5.0)
            assert try_once(backend, "job")


def test_a_row_locked_by_somebody_blocks_nobody_for_ever(server: PostgresServer) -> None:
    with opened(server.url) as backend, server.connect() as admin:
        backend.release(take(backend, "job"), 5.0)
        with admin.transaction():
            admin.execute("SELECT FROM distlock_lock FOR UPDATE")
            start = boottime()
            with backend.enqueue(request("job", 3.0)) as ticket, pytest.raises(Unavailable, match="does not answer"):
                ticket.poll()
            assert boottime() - start < 2.5  # the try, and leaving the queue
            with pytest.raises(Unavailable, match="does not answer"):
                backend.release(take(backend, "other")._replace(name="job"), 0.5)
        _nobody_is_blocked(server)
        assert left_behind(server)["held"] == ["other"]
        assert try_once(backend, "job")


def test_a_try_that_a_row_held_back_grants_nothing_when_nobody_waits_for_it(server: PostgresServer) -> None:
    """Its sender has gone, and nobody would release the lock."""
    with opened(server.url) as backend, opened(server.url) as stranger, server.connect() as admin:
        backend.release(take(backend, "job"), 5.0)
        with admin.transaction():
            admin.execute("SELECT FROM distlock_lock FOR UPDATE")
            for hopeful in (True, False):
                with pytest.raises(Unavailable, match="does not answer"):
                    stranger.attempt(request("job", 30.0), "0", 0.5, hopeful=hopeful)
        _nobody_is_blocked(server)
        assert left_behind(server) == NOTHING


def test_a_try_that_a_hanging_server_reads_later_grants_nothing(server: PostgresServer) -> None:
    """It lies in the socket, and its sender has gone."""
    with ExitStack() as stack:
        tries = [stack.enter_context(opened(server.url)) for _ in range(2)]
        for backend in tries:
            backend.release(take(backend, "job"), 5.0)
        server.freeze()
        try:
            for backend, hopeful in zip(tries, (True, False), strict=True):
                with pytest.raises(Unavailable, match="does not answer"):
                    backend.attempt(request("job", 30.0), "0", 0.5, hopeful=hopeful)
        finally:
            server.thaw()
        wait_until(lambda: server.sessions() == [])
        assert left_behind(server) == NOTHING


def _nobody_is_blocked(server: PostgresServer) -> None:
    wait_until(lambda: server.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == [0])
    wait_until(lambda: server.sql("SELECT count(*) FROM pg_stat_activity WHERE state = 'active'") == [1])


def test_the_holder_hears_that_its_lease_went_to_somebody_else(server: PostgresServer) -> None:
    """The clock was set forward, or somebody had his fingers in the table."""
    with opened(server.url) as backend, opened(server.url) as other:
        grant = backend.renew(take(backend, "job"), 5.0)
        alarm = backend.alarm(grant)
        assert alarm is not None
        assert not _is_readable(alarm)
        server.sql("UPDATE distlock_lock SET expires_at = now()")
        assert take(other, "job")
        wait_until(lambda: _is_readable(alarm), 1.0)
        with pytest.raises(LeaseLost, match="went to somebody else"):
            backend.renew(grant, 5.0)
        assert not _is_readable(alarm)


def test_the_end_of_a_connection_is_an_alarm_and_no_loss(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        grant = take(backend, "job")
        alarm = backend.alarm(grant)
        assert alarm is not None
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'distlock'")
        wait_until(lambda: _is_readable(alarm), 1.0)
        grant = backend.renew(grant, 5.0)
        alarm = backend.alarm(grant)
        assert alarm is not None
        assert not _is_readable(alarm)


def _another_backend(server: PostgresServer, before: int) -> bool:
    return server.sql("SELECT backend FROM distlock_waiter") not in ([before], [])


def _is_readable(descriptor: int | None) -> bool:
    assert descriptor is not None
    return bool(select.select([descriptor], [], [], 0)[0])


def test_a_waiter_whose_session_is_ended_goes_on(server: PostgresServer) -> None:
    with opened(server.url) as backend, Contender(server.url, "job") as first:
        first.granted()
        with Contender(server.url, "job") as second:
            second.expect("waiting")
            for _ in range(3):
                (before,) = server.sql("SELECT backend FROM distlock_waiter")
                server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'distlock'")
                wait_until(partial(_another_backend, server, before))
            first.tell("release")
            second.granted()
        assert backend.inspect("job", 5.0).held


def test_many_tries_at_once_lose_nobody(server: PostgresServer) -> None:
    """Every interleaving of tries, leaves and releases that eight threads come upon: at most one holder, tokens that
    only grow, and nobody who waits for longer than it takes, as one would whose wake-up was lost."""
    inside: list[int] = []
    tokens: list[int] = []
    waits: list[float] = []
    problems: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with opened(server.url) as backend:
                for turn in range(15):
                    with backend.enqueue(request("job", 30.0)) as ticket:
                        if (number + turn) % 5 == 0:  # some give up at once
                            grant = ticket.poll()
                        else:
                            start = boottime()
                            grant = acquire(ticket, 60.0)
                            waits.append(boottime() - start)
                    if grant is None:
                        continue
                    inside.append(number)
                    assert inside == [number]
                    tokens.append(grant.token or 0)
                    inside.remove(number)
                    backend.release(grant, 5.0)
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert problems == []
    assert tokens == sorted(set(tokens))
    assert left_behind(server) == NOTHING


def test_a_waiter_asks_about_once_a_second(server: PostgresServer) -> None:
    with opened(server.url) as backend, Contender(server.url, "job") as waiter:
        waiter.granted()
        with Contender(server.url, "job") as second:
            second.expect("waiting")
            seen = set()
            until = boottime() + 5.0
            while boottime() < until:
                seen.update(server.sql("SELECT seen_at FROM distlock_waiter"))
            assert 3 <= len(seen) <= 7
        assert backend.inspect("job", 5.0).held


def test_sessions_hold_no_transaction_open(server: PostgresServer) -> None:
    with opened(server.url) as backend, Contender(server.url, "job") as holder, Contender(server.url, "job") as waiter:
        holder.granted()
        waiter.expect("waiting")
        look = "SELECT DISTINCT state FROM pg_stat_activity WHERE application_name = 'distlock'"
        wait_until(lambda: server.sql(look) == ["idle"])
        assert backend.inspect("job", 5.0).held


def test_what_is_left_of_a_lock_is_one_row(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        for _ in range(5):
            grant = take(backend, "job")
            with backend.enqueue(request("job", 30.0)) as ticket:
                assert ticket.poll() is None
            backend.release(grant, 5.0)
    assert server.sql("SELECT count(*) FROM distlock_lock") == [1]
    assert left_behind(server) == NOTHING
    wait_until(lambda: server.sessions() == [])


@pytest.mark.parametrize("value", ["plain", "it's", "back\\slash", 'quo"te', "", "x" * 300, "a;b", "%s {x}"])
def test_values_arrive_as_they_are(server: PostgresServer, value: str) -> None:
    assert server.sql(f"SELECT {sql.text(value)}".replace("%", "%%")) == [value]


def test_channels_are_short_enough() -> None:
    assert len(sql.channel("wake", "x" * 1000)) < 64
    assert sql.channel("wake", "p") != sql.channel("wake", "p/1")
