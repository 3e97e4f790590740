"""What lies in Redis: who else it excludes, that nothing stays, tokens over the loss of everything, layout versions."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

import redis_fixtures
from contenders import Contender, acquire, never, request, take, try_once
from distlock.backends.base import SUCCESS, SUCCESS_KEPT, LeaseLost, LockState, Mark, Revoked, Unavailable
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


def test_the_lock_is_the_key_that_set_nx_px_makes(server: RedisServer, backend: RedisBackend) -> None:
    take(backend, "a b/ж", ttl=20.0, owner="me")
    assert server.command("GET", "lock:a b/ж") == b"me"
    assert 19_000 < server.command("PTTL", "lock:a b/ж") <= 20_000
    assert set(backend.places("a b/ж")) >= set(keys(server))


def test_no_key_without_an_expiry_but_the_token(
    server: RedisServer, backend: RedisBackend, other: RedisBackend
) -> None:
    """Watched by the server's own log of commands: what sets a key gives the expiry in the same script, which Redis
    runs, replicates and logs as one."""
    held = take(backend, "n")
    with other.enqueue(request("n", 30.0)) as first, other.enqueue(request("n", 30.0)) as second:
        assert first.poll() is None
        assert second.poll() is None
        found = keys(server)
        assert set(found) == set(backend.keys("n")) - {marks_key("n")}
        assert [key for key, left in found.items() if left == -1] == [token_key("n")]
        assert all(left <= 30_000 for left in found.values())
        backend.release(backend.renew(held, 5.0), 5.0)
        acquire(first)
        assert [key for key, left in keys(server).items() if left == -1] == [token_key("n")]
    backend.release(take(backend, "m"), 5.0)
    server.command("DEL", "lock:n", "distlock:{lock:n}:holder")
    assert keys(server) == {token_key("n"): -1, token_key("m"): -1}


def test_a_server_out_of_memory_gives_the_lock_back_all_the_same(server: RedisServer, backend: RedisBackend) -> None:
    held = take(backend, "n")
    server.command("CONFIG", "SET", "maxmemory", 1)
    try:
        backend.release(held, 5.0, (Mark(SUCCESS, 1.0, SUCCESS_KEPT),))
        assert not backend.inspect("n", 5.0).held
    finally:
        server.command("CONFIG", "SET", "maxmemory", 0)


def test_marks_are_kept_as_long_as_the_last_of_them_and_dropped_one_by_one(
    server: RedisServer, backend: RedisBackend
) -> None:
    grant = take(backend, "n")
    for number in range(3):
        backend.mark(grant, Mark(f"short {number}", 0.0, 0.3), 5.0)
    backend.release(grant, 5.0, (Mark(SUCCESS, 100.0, SUCCESS_KEPT),))
    found = keys(server)
    assert set(found) == {token_key("n"), marks_key("n")}
    assert 366 * 86400_000 < found[marks_key("n")] <= 400 * 86400_000
    wait_until(lambda: backend.marked("n", "short 0", 5.0) is None)
    backend.release(take(backend, "n"), 5.0, (Mark("b", 0.0, 10.0),))
    assert set(server.command("HKEYS", marks_key("n"))) == {b"success", b"b"}
    server.command("HDEL", marks_key("n"), "success")
    backend.release(take(backend, "n"), 5.0, (Mark("b", 0.0, 10.0),))
    assert keys(server)[marks_key("n")] <= 10_000


def test_a_mark_of_an_unknown_layout_or_type_is_none_and_in_nobodys_way(
    server: RedisServer, backend: RedisBackend
) -> None:
    for unknown in ("2:5:99999999999999999", "x", ""):
        server.command("HSET", marks_key("n"), SUCCESS, unknown)
        assert backend.inspect("n", 5.0).last_success is None
    server.command("DEL", marks_key("n"))
    server.command("LPUSH", marks_key("n"), "x")
    assert backend.inspect("n", 5.0).last_success is None
    backend.release(take(backend, "n"), 5.0, (Mark(SUCCESS, 0.0, 60.0),))
    assert backend.inspect("n", 5.0).last_success


def test_a_crashed_queue_vanishes_by_itself(server: RedisServer, backend: RedisBackend) -> None:
    take(backend, "n", ttl=1.0)
    with Contender(server.url, "n") as waiter:
        waiter.expect("waiting")
        waiter.kill()
    assert 5_000 < server.command("PTTL", "distlock:{lock:n}:queue") <= 10_000
    wait_until(lambda: set(keys(server)) == {token_key("n")}, 11)


def test_a_foreign_lock_excludes_and_is_excluded(server: RedisServer, backend: RedisBackend) -> None:
    with closing(server.client()) as client:
        foreign = client.lock("lock:n", timeout=30)
        assert foreign.acquire(blocking=False)
        assert try_once(backend, "n") is None
        state = backend.inspect("n", 5.0)
        assert (state.held, state.holder, state.token, state.ttl) == (True, None, None, None)
        assert 25 < (state.expires_in or 0) <= 30
        with backend.enqueue(request("n", 30.0)) as ticket:
            assert ticket.poll() is None
            assert not client.lock("lock:n", timeout=30).acquire(blocking=False)
            foreign.release()  # wakes nobody
            released = boottime()
            grant = acquire(ticket, 2.0)
            assert boottime() - released < 1.5
        assert not client.lock("lock:n", timeout=30).acquire(blocking=False)
        assert client.set("lock:n", "x", nx=True, px=1000) is None
        backend.release(grant, 5.0)
        assert client.lock("lock:n", timeout=30).acquire(blocking=False)
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)


def test_a_foreign_lock_that_runs_out(server: RedisServer, backend: RedisBackend) -> None:
    """Its PTTL says when to come: nobody has to find out by polling."""
    server.command("SET", "lock:n", "x", "NX", "PX", 700)
    start = boottime()
    with backend.enqueue(request("n", 30.0)) as ticket:
        acquire(ticket, 2.0)
    assert 0.69 < boottime() - start < 0.85


def test_a_foreign_lock_without_an_expiry(server: RedisServer, backend: RedisBackend) -> None:
    server.command("SET", "lock:n", "x")
    assert backend.inspect("n", 5.0) == LockState("n", True, None, None, None, None, ())
    with backend.enqueue(request("n", 30.0)) as ticket, never() as cancel:
        assert ticket.poll() is None
        start = boottime()
        ticket.wait(10.0, cancel)
        assert 1.0 <= boottime() - start < 1.5


@pytest.mark.parametrize("command", [("HSET", "lock:n", "thread", 1), ("SADD", "lock:n", "x"), ("SET", "lock:n", "")])
def test_a_key_that_is_no_lock_of_ours_is_held(
    server: RedisServer, backend: RedisBackend, command: tuple[str | int, ...]
) -> None:
    """As of Redisson, whose locks are hashes."""
    server.command(*command)
    assert try_once(backend, "n") is None
    assert backend.inspect("n", 5.0).held
    assert backend.inspect("n", 5.0).holder is None
    assert [(state.name, state.held) for state in backend.locks(5.0)] == [("n", True)]
    server.command("DEL", "lock:n")
    assert try_once(backend, "n")


@pytest.mark.parametrize("how", ["DEL", "a thief", "a hash"])
def test_a_holder_whose_key_was_taken_has_lost(server: RedisServer, backend: RedisBackend, how: str) -> None:
    grant = take(backend, "n")
    server.command("DEL", "lock:n")
    if how == "a thief":
        server.command("SET", "lock:n", "thief", "PX", 9000)
    elif how == "a hash":
        server.command("HSET", "lock:n", "x", "y")
    before = server.command("DUMP", "lock:n")
    with pytest.raises(LeaseLost, match="key was removed" if how == "DEL" else "somebody else"):
        backend.renew(grant, 5.0)
    backend.release(grant, 5.0)
    assert server.command("DUMP", "lock:n") == before


def test_who_holds_is_not_mixed_up_with_who_held(server: RedisServer, backend: RedisBackend) -> None:
    take(backend, "n", owner="before")
    server.command("SET", "lock:n", "thief", "PX", 9000)
    state = backend.inspect("n", 5.0)
    assert (state.held, state.holder, state.token) == (True, None, None)


@pytest.mark.parametrize("label", ['","revoked":"me"}', ',"revoked":null}', '\\","revoked":"me"}\\'])
def test_what_a_holder_says_of_itself_takes_nothing_away(backend: RedisBackend, label: str) -> None:
    """Though the operator who took the lease away stands in the same text."""
    asked = request("n", 30.0)
    with backend.enqueue(asked._replace(client=asked.client._replace(label=label))) as ticket:
        grant = acquire(ticket)
    grant = backend.renew(grant, 5.0)
    assert backend.inspect("n", 5.0).revoked_by is None
    for by in ('"%1\\\u0436"}', "another"):  # the first counts
        assert backend.revoke("n", grant.token, None, by, 5.0, now=False)
        state = backend.inspect("n", 5.0)
        assert state.revoked_by == '"%1\\\u0436"}'
        assert state.holder
        assert state.holder.label == label
        with pytest.raises(Revoked, match=re.escape('"%1\\\u0436"}')):
            backend.renew(grant, 5.0)


# -- tokens ---------------------------------------------------------------------------------------------------------


def test_tokens_grow_over_the_loss_of_everything(server: RedisServer, backend: RedisBackend) -> None:
    tokens = []
    for how in (("FLUSHALL",), ("DEL", token_key("n")), ("FLUSHALL", "ASYNC"), ("FLUSHDB",)):
        grant = take(backend, "n")
        tokens.append(grant.token or 0)
        backend.release(grant, 5.0)
        server.command(*how)
    assert tokens == sorted(set(tokens))
    assert all(10**15 < token < 2**53 for token in tokens)


def test_a_token_follows_the_last_even_if_the_clock_does_not(server: RedisServer, backend: RedisBackend) -> None:
    future = 2**52 + 1
    server.command("SET", token_key("n"), f"1:{future}")
    for expected in (future + 1, future + 2):
        grant = take(backend, "n")
        assert grant.token == expected
        backend.release(grant, 5.0)
    assert server.command("GET", token_key("n")) == f"1:{future + 2}".encode()


# -- layout ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", ["2:17", "17", "", "1:", "1:x", "1:1e3", "1:17 ", "{}", "\\xff"])
def test_an_unknown_layout_is_never_free(server: RedisServer, backend: RedisBackend, record: str) -> None:
    server.command("SET", token_key("n"), record)
    before = keys(server)
    for call in (lambda: try_once(backend, "n"), lambda: backend.inspect("n", 5.0)):
        with pytest.raises(Unavailable, match="layout that this program does not know") as caught:
            call()
        assert caught.value.permanent
    assert keys(server) == before


def test_an_unknown_layout_hides_no_other_lock(server: RedisServer, backend: RedisBackend) -> None:
    for name in ("a", "c"):
        take(backend, name)
    server.command("HSET", token_key("b"), "token", 17)
    listing = backend.locks(5.0)
    assert [next(listing).name, next(listing).name] == ["a", "c"]
    with pytest.raises(Unavailable, match="'b' is 'not a string'"):
        next(listing)


def test_details_that_nobody_can_read_are_a_holder_unknown(server: RedisServer, backend: RedisBackend) -> None:
    take(backend, "n", owner="me")
    for details in (
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"owner":"me"}',
        json.dumps({"owner": 1, "pid": "x"}).encode(),
    ):
        server.command("SET", "distlock:{lock:n}:holder", details, "PX", 9000)
        state = backend.inspect("n", 5.0)
        assert (state.held, state.holder) == (True, None)


# -- listing ---------------------------------------------------------------------------------------------------------


def test_listing_finds_every_kind_and_nothing_else(server: RedisServer, backend: RedisBackend) -> None:
    take(backend, "held")
    backend.release(take(backend, "free"), 5.0)
    server.command("SET", "lock:foreign", "x")
    for stranger in ("lock:", "lock:{x}", "block:y", "distlock:{lock:", "customer:lock:1", "lock", b"lock:\xff"):
        server.command("SET", stranger, "1")
    server.command("SET", "lock:and waited for", "x")
    with backend.enqueue(request("and waited for", 30.0)) as ticket:
        assert ticket.poll() is None
        listed = {state.name: (state.held, len(state.waiters), state.token is not None) for state in backend.locks(5.0)}
    assert listed == {
        "held": (True, 0, True),
        "free": (False, 0, True),
        "foreign": (True, 0, False),
        "and waited for": (True, 1, False),
    }


def test_a_thousand_locks_are_listed_in_a_second(backend: RedisBackend) -> None:
    names = [f"{number:04}" for number in range(1000)]
    for name in names:
        assert try_once(backend, name)
    start = boottime()
    listed = [state.name for state in backend.locks(5.0) if state.holder]
    assert boottime() - start < 1.0
    assert sorted(listed) == names


def test_listing_while_locks_come_and_go(server: RedisServer, backend: RedisBackend) -> None:
    """Each that is there all the time is listed once."""
    for number in range(300):
        assert try_once(backend, f"{number:03}")
    stop = threading.Event()

    def churn() -> None:
        with opened(server.url) as own:
            while not stop.is_set():
                for number in range(50):
                    with suppress(LeaseLost):
                        own.release(take(own, f"churn {number}"), 5.0)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(5):
            listed = [state.name for state in backend.locks(5.0) if not state.name.startswith("churn")]
            assert sorted(listed) == [f"{number:03}" for number in range(300)]
    finally:
        stop.set()
        thread.join()


def test_a_thousand_locks_among_a_million_other_keys(server: RedisServer, backend: RedisBackend) -> None:
    """Never KEYS: each request keeps the others waiting for a few milliseconds at most."""
    server.command("DEBUG", "POPULATE", 1_000_000, "customer", 10)
    for number in range(1000):
        assert try_once(backend, f"{number:04}")
    server.command("CONFIG", "RESETSTAT")
    start = boottime()
    assert len([state.name for state in backend.locks(5.0) if state.holder]) == 1000
    assert boottime() - start < 10.0
    used = server.command("INFO", "commandstats")
    assert "cmdstat_keys" not in used
    assert used["cmdstat_scan"]["usec_per_call"] < 5_000
    assert used["cmdstat_evalsha"]["usec_per_call"] < 1_000
