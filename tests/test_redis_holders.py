"""Several holders on Redis beyond the contract: what lies in the keys, foreign clients, who waits among them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

import redis_fixtures
from contenders import Contender, acquire, request, take, try_once
from distlock.backends.base import Grant, LeaseLost, Mark, OtherHolders, Revoked, Ticket
from distlock.backends.redis import RedisBackend
from distlock.clock import boottime
from processes import wait_until
from redis_fixtures import keys, marks_key, opened, token_key
from servers import RedisServer

one_server = redis_fixtures.one_server
server = redis_fixtures.emptied_server
backend = redis_fixtures.backend


@pytest.fixture
def other(server: RedisServer) -> Iterator[RedisBackend]:
    with opened(server.unix_url) as one:
        yield one


def left(server: RedisServer) -> float:
    """Seconds that the lock's key lasts."""
    found: int = server.command("PTTL", "lock:n")
    return found / 1000


def test_the_key_lasts_as_long_as_the_longest_lease(server: RedisServer, backend: RedisBackend) -> None:
    short, longest, third = (take(backend, "n", ttl, holders=3) for ttl in (10.0, 60.0, 20.0))
    assert server.command("GET", "lock:n") == b"holders:3"
    assert 59 < left(server) <= 60
    backend.release(longest, 5.0)
    assert 19 < left(server) <= 20
    backend.renew(short._replace(ttl=40.0), 5.0)
    assert 39 < left(server) <= 40
    backend.release(third, 5.0, (), 50.0)
    assert 49 < left(server) <= 50
    found = keys(server)
    several = {key for key in backend.places("n") if key.endswith((":places", ":holders"))}
    assert set(found) == {"lock:n", token_key("n"), *several}
    assert {key for key, time in found.items() if time == -1} == {token_key("n")}
    backend.release(short, 5.0)
    assert backend.revoke("n", third.token, None, "me", 5.0, now=False)
    assert keys(server) == {token_key("n"): -1}


def test_foreign_clients_are_excluded_by_any_of_them_and_exclude_them_all(
    server: RedisServer, backend: RedisBackend
) -> None:
    grants = [take(backend, "n", holders=2) for _ in range(2)]
    with closing(server.client()) as client:
        foreign = client.lock("lock:n", timeout=30)
        for grant in grants:
            assert not foreign.acquire(blocking=False)
            backend.release(grant, 5.0)
        assert foreign.acquire(blocking=False)
        assert try_once(backend, "n", holders=2) is None
        assert backend.inspect("n", 5.0).holdings == ()
        with backend.enqueue(request("n", 30.0, holders=2)) as ticket:
            assert ticket.poll() is None
            foreign.release()
            acquire(ticket, 2.0)
        assert not foreign.acquire(blocking=False)


def test_a_foreign_lock_that_looks_like_one_of_several_is_not_deleted(
    server: RedisServer, backend: RedisBackend
) -> None:
    server.command("SET", "lock:n", "holders:2", "PX", 60_000)
    assert try_once(backend, "n", holders=2) is None
    state = backend.inspect("n", 5.0)
    assert (state.held, state.holder) == (True, None)
    assert not list(backend.purge(lambda _: True, 0.0, 5.0))
    assert server.command("GET", "lock:n") == b"holders:2"


@pytest.mark.parametrize("how", ["DEL", "a thief", "FLUSHALL"])
def test_holders_whose_key_was_taken_have_lost(server: RedisServer, backend: RedisBackend, how: str) -> None:
    grants = [take(backend, "n", holders=2) for _ in range(2)]
    if how == "a thief":
        server.command("SET", "lock:n", "thief", "PX", 9000)
    else:
        server.command(*(["DEL", "lock:n"] if how == "DEL" else ["FLUSHALL"]))
    for grant in grants:
        with pytest.raises(LeaseLost, match="somebody else" if how == "a thief" else "key was removed"):
            backend.renew(grant, 5.0)
    if how == "a thief":
        backend.release(grants[0], 5.0)
        assert server.command("GET", "lock:n") == b"thief"
        server.command("DEL", "lock:n")
    again = take(backend, "n", holders=3)
    assert again.holder_index == 0
    assert len(backend.inspect("n", 5.0).holdings) == 1
    for grant in grants:
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)
    backend.renew(again, 5.0)


@pytest.mark.parametrize("holders", [1, 3])
def test_a_try_whose_answer_was_lost(backend: RedisBackend, other: RedisBackend, holders: int) -> None:
    """Made again, it has what it got, and undoes nothing that an operator has done in between."""

    def tried() -> Grant:
        grant = other.enqueue(request("n", 30.0, "me", holders)).poll()
        assert grant is not None
        return grant

    take(backend, "n", holders=holders) if holders > 1 else None
    first = tried()
    second = tried()
    assert (second.token, second.holder_index) == (first.token, first.holder_index)
    assert second.valid_from > first.valid_from
    assert len(backend.inspect("n", 5.0).holdings) == (2 if holders > 1 else 0)
    assert backend.revoke("n", first.token, None, "al@ops", 5.0, now=False)
    third = tried()
    assert third.token == first.token
    with pytest.raises(Revoked, match="al@ops"):
        other.renew(third, 5.0)
    other.release(third, 5.0)
    other.renew(take(other, "n", owner="me", holders=holders), 5.0)


def test_an_index_that_is_not_the_owners_is_not_renewed(backend: RedisBackend) -> None:
    grant = take(backend, "n", holders=2)
    with pytest.raises(LeaseLost):
        backend.renew(grant._replace(holder_index=1), 5.0)
    backend.renew(grant, 5.0)


def test_marks_of_one_of_several(server: RedisServer, backend: RedisBackend) -> None:
    first, second = (take(backend, "n", holders=2) for _ in range(2))
    backend.mark(first, Mark("a", 1.0, 60.0), 5.0)
    backend.release(second, 5.0, (Mark("b", 1.0, 60.0),))
    assert backend.marked("n", "a", 5.0)
    assert backend.marked("n", "b", 5.0)
    with pytest.raises(LeaseLost):
        backend.mark(second, Mark("c", 1.0, 60.0), 5.0)
    backend.release(second, 5.0, (Mark("c", 1.0, 60.0),))
    assert backend.marked("n", "c", 5.0) is None
    backend.release(first, 5.0)
    assert set(keys(server)) == {token_key("n"), marks_key("n")}


# -- who waits ---------------------------------------------------------------------------------------------------------


def test_waiters_of_all_kinds_are_served_in_order(server: RedisServer, backend: RedisBackend) -> None:
    """While nobody holds it, those of another number too; each release and each grant wakes all that have a turn."""
    held = take(backend, "n")
    with ExitStack() as stack:
        server.command("SET", "lock:n", "foreign", "PX", 60_000)  # so that nobody is refused
        waiting = []
        for holders in (1, 3, 3, 3, 3, 1, 2, 2):
            waiting.append(stack.enter_context(Contender(server.url, "n", f"--holders={holders}")))
            waiting[-1].expect("waiting")
        server.command("SET", "lock:n", held.owner, "PX", 60_000)
        backend.release(held, 5.0)
        tokens = [waiting[0].granted(2.0)[0]]
        waiting[0].tell("release")
        tokens += [one.granted(2.0)[0] for one in waiting[1:4]]
        for one in waiting[5:]:
            one.expect("failed")
        for one in waiting[1:4]:
            one.tell("release")
            one.expect("released")
        tokens.append(waiting[4].granted(2.0)[0])
        assert tokens[0] < min(tokens[1:4]) <= max(tokens[1:4]) < tokens[4]


def test_who_waits_with_another_number_is_in_nobodys_way(backend: RedisBackend, other: RedisBackend) -> None:
    """It has not been told yet, but is to go."""
    with ExitStack() as stack:
        foreign = take(backend, "n")
        backend.release(foreign, 5.0, (), 60.0)

        def queued(holders: int) -> Ticket:
            ticket = stack.enter_context(other.enqueue(request("n", 30.0, holders=holders)))
            with pytest.raises(OtherHolders):
                ticket.poll()
            return ticket

        queued(4)
        assert backend.revoke("n", foreign.token, None, "me", 5.0, now=True)
        grants = [take(backend, "n", holders=2) for _ in range(2)]
        with backend.enqueue(request("n", 30.0, holders=2)) as second:
            assert second.poll() is None
            queued(3)
            backend.release(grants[0], 5.0)
            assert second.poll()


def test_frozen_waiters_are_passed_within_five_seconds(server: RedisServer, backend: RedisBackend) -> None:
    grants = [take(backend, "n", holders=2) for _ in range(2)]
    with ExitStack() as stack:
        frozen = [stack.enter_context(Contender(server.url, "n", "--holders=2")) for _ in range(3)]
        living = stack.enter_context(Contender(server.url, "n", "--holders=2"))
        for waiter in (*frozen, living):
            waiter.expect("waiting")
        for waiter in frozen:
            waiter.signal(signal.SIGSTOP)
        released = boottime()
        for grant in grants:
            backend.release(grant, 5.0)
        living.granted(5.0)
        assert boottime() - released < 5.0
        for waiter in frozen[:1]:
            waiter.signal(signal.SIGCONT)
            waiter.granted(2.0)


def test_a_lease_that_runs_out_is_found_without_polling(backend: RedisBackend, other: RedisBackend) -> None:
    take(backend, "n", ttl=30.0, holders=2)
    short = take(backend, "n", ttl=0.7, holders=2)
    with other.enqueue(request("n", 30.0, holders=2)) as ticket:
        acquire(ticket, 2.0)
        assert 0.69 < boottime() - short.valid_from < 0.85


def test_a_thousand_holders_are_fast(server: RedisServer, backend: RedisBackend) -> None:
    grants = [take(backend, "n", holders=1000) for _ in range(1000)]
    assert sorted(grant.holder_index for grant in grants) == list(range(1000))
    assert try_once(backend, "n", holders=1000) is None
    server.command("CONFIG", "RESETSTAT")
    for grant in grants[:100]:
        backend.renew(grant, 5.0)
    assert server.command("INFO", "commandstats")["cmdstat_evalsha"]["usec_per_call"] < 300
    assert len(backend.inspect("n", 5.0).holdings) == 1000
    for grant in grants:
        backend.release(grant, 5.0)
    wait_until(lambda: set(keys(server)) == {token_key("n")})


def test_holders_of_whom_only_the_places_are_left_are_in_the_way_and_seen_as_unknown(
    server: RedisServer, backend: RedisBackend
) -> None:
    """As after an eviction, or somebody's DEL."""
    take(backend, "n", 30.0, holders=2)
    (lost,) = [key for key in server.command("KEYS", "*") if key.endswith(b":holders")]
    server.command("DEL", lost)
    assert try_once(backend, "n", holders=2) is None
    for state in (backend.inspect("n", 5.0), *backend.locks(5.0)):
        assert (state.held, state.holder, state.holdings) == (True, None, ())
