"""Forgetting records on Redis beyond the contract: what is never forgotten, at what cost, and beside those who work."""

from __future__ import annotations

import threading
import tracemalloc

import redis_fixtures
from contenders import take
from distlock.backends.base import Mark
from distlock.backends.redis import RedisBackend
from distlock.clock import boottime
from redis_fixtures import keys, opened, token_key
from servers import RedisServer

one_server = redis_fixtures.one_server
server = redis_fixtures.emptied_server
backend = redis_fixtures.backend


def purged(backend: RedisBackend, unused_for: float = 0.0) -> list[str]:
    return sorted(backend.purge(lambda _: True, unused_for, 5.0))


def test_a_token_ahead_of_the_clock_stays(server: RedisServer, backend: RedisBackend) -> None:
    """Of a server whose clock was set back: what it would give next is smaller."""
    for name, token in (("ahead", 2**52), ("past", 10**15)):
        server.command("SET", token_key(name), f"1:{token}")
    assert purged(backend) == ["past"]
    assert keys(server) == {token_key("ahead"): -1}


def test_an_unknown_layout_stays(server: RedisServer, backend: RedisBackend) -> None:
    server.command("SET", token_key("later"), "2:17")
    server.command("HSET", token_key("a hash"), "token", 17)
    backend.release(take(backend, "n"), 5.0)
    assert purged(backend) == ["n"]
    assert set(keys(server)) == {token_key("later"), token_key("a hash")}


def test_what_no_lock_needs_any_more_goes_with_it(server: RedisServer, backend: RedisBackend) -> None:
    backend.release(take(backend, "n"), 5.0, (Mark("old", 1.0, 0.001),))
    server.command("PERSIST", "distlock:{lock:n}:marks")
    server.command("ZADD", "distlock:{lock:n}:queue", 5, "dead")
    server.command("HSET", "distlock:{lock:n}:waiters", "dead", "5 {}")
    server.command("SET", "customer", "x")
    assert purged(backend) == ["n"]
    assert set(keys(server)) == {"customer"}


def test_a_foreign_lock_keeps_the_record(server: RedisServer, backend: RedisBackend) -> None:
    backend.release(take(backend, "n"), 5.0)
    server.command("SET", "lock:n", "foreign")
    assert purged(backend) == []
    server.command("DEL", "lock:n")
    assert purged(backend) == ["n"]


def test_ten_thousand_in_bounded_memory_and_calls(server: RedisServer, backend: RedisBackend) -> None:
    server.command("EVAL", "for i = 1, 10000 do redis.call('SET', 'distlock:{lock:' .. i .. '}:token', '1:17') end", 0)
    server.command("DEBUG", "POPULATE", 20_000, "customer", 10)
    server.command("CONFIG", "RESETSTAT")
    start = boottime()
    tracemalloc.start()
    try:
        count = sum(1 for _ in backend.purge(lambda _: True, 0.0, 5.0))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 10_000
    assert peak < 2_000_000
    assert boottime() - start < 60.0
    used = server.command("INFO", "commandstats")
    assert used["cmdstat_scan"]["calls"] < 40
    assert used["cmdstat_evalsha"]["usec_per_call"] < 1_000
    assert "cmdstat_keys" not in used


def test_beside_those_who_work(server: RedisServer, backend: RedisBackend) -> None:
    """A lock that is being taken is never forgotten under its holder, and its tokens grow all the time."""
    stop = threading.Event()
    counts: list[int] = []

    def purge() -> None:
        with opened(server.url) as own:
            while not stop.is_set():
                counts.append(len(purged(own)))

    thread = threading.Thread(target=purge)
    thread.start()
    try:
        tokens = []
        for turn in range(400):
            grant = take(backend, "n", holders=1 + turn % 2)
            tokens.append(grant.token or 0)
            backend.release(backend.renew(grant, 5.0), 5.0)
    finally:
        stop.set()
        thread.join()
    assert sum(counts) > 0
    assert tokens == sorted(set(tokens))
