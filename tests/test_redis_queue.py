"""Waiting on Redis beyond the contract: waiters that are frozen, cut off or disconnected, and what waiting costs."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

import redis_fixtures
from contenders import Contender, acquire, never, request, take, try_once
from distlock.backends.base import Unavailable
from distlock.backends.redis import RedisBackend
from distlock.clock import boottime
from processes import wait_until
from proxy import Proxy
from redis_fixtures import keys, opened, token_key
from servers import RedisServer

server = redis_fixtures.server
backend = redis_fixtures.backend


INSPECTION = ("get", "hget", "pttl", "time", "zrange")


def test_frozen_waiters_are_passed_within_five_seconds(server: RedisServer, backend: RedisBackend) -> None:
    """All together; one that thaws has its place back."""
    held = take(backend, "n")
    with ExitStack() as stack:
        frozen = [stack.enter_context(Contender(server.url, "n")) for _ in range(3)]
        next_one, last = (stack.enter_context(Contender(server.url, "n")) for _ in range(2))
        for waiter in (*frozen, next_one, last):
            waiter.expect("waiting")
        for waiter in frozen:
            waiter.signal(signal.SIGSTOP)
        released = boottime()
        backend.release(held, 5.0)
        _, at = next_one.granted()
        assert 2.5 < at - released < 5.0
        frozen[1].signal(signal.SIGCONT)
        wait_until(lambda: len(backend.inspect("n", 5.0).waiters) == 2)
        next_one.tell("release")
        token, _ = frozen[1].granted(1.0)  # it came before the last one
        frozen[1].tell("release")
        assert last.granted(1.0)[0] > token


def test_a_single_try_passes_frozen_waiters_too(server: RedisServer, backend: RedisBackend) -> None:
    held = take(backend, "n")
    with ExitStack() as stack:
        for _ in range(3):
            waiter = stack.enter_context(Contender(server.url, "n"))
            waiter.expect("waiting")
            waiter.signal(signal.SIGSTOP)
        released = boottime()
        backend.release(held, 5.0)
        assert try_once(backend, "n") is None
        wait_until(lambda: try_once(backend, "n"))
        assert boottime() - released < 5.0


def test_waiters_on_a_host_that_vanished(server: RedisServer, backend: RedisBackend) -> None:
    """Their connections stay open for the server, but nothing comes through."""
    held = take(backend, "n")
    with Proxy(server.port) as proxy, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(Contender(f"redis://127.0.0.1:{proxy.port}", "n")).expect("waiting")
        with backend.enqueue(request("n", 30.0)) as ticket:
            assert ticket.poll() is None
            proxy.black_hole()
            vanished = boottime()
            backend.release(held, 5.0)
            acquire(ticket)
            assert boottime() - vanished < 5.0
        assert backend.inspect("n", 5.0).waiters == ()


def test_a_killed_waiter_is_not_listed(server: RedisServer, backend: RedisBackend) -> None:
    take(backend, "n")
    with Contender(server.url, "n") as dying, Contender(server.url, "n") as living:
        dying.expect("waiting")
        living.expect("waiting")
        dying.kill()
        wait_until(lambda: [w.owner for w in backend.inspect("n", 5.0).waiters] == [living.owner], 0.5)


def test_dead_waiters_do_not_pile_up_behind_a_held_lock(server: RedisServer, backend: RedisBackend) -> None:
    take(backend, "n", ttl=60.0)
    with Contender(server.url, "n") as living, ExitStack() as stack:
        for waiter in [stack.enter_context(Contender(server.url, "n")) for _ in range(5)]:
            waiter.expect("waiting")
            waiter.kill()
        living.expect("waiting")
        assert server.command("ZCARD", "distlock:{lock:n}:queue") == 6

        def sizes() -> tuple[int, int]:
            try_once(backend, "n")
            return server.command("ZCARD", "distlock:{lock:n}:queue"), server.command(
                "HLEN", "distlock:{lock:n}:waiters"
            )

        wait_until(lambda: sizes() == (1, 1), 6)


def test_killed_waiters_cost_no_time_when_a_lease_runs_out(server: RedisServer, backend: RedisBackend) -> None:
    held = take(backend, "n", ttl=30.0)
    with ExitStack() as stack:
        dead = [stack.enter_context(Contender(server.url, "n")) for _ in range(5)]
        for waiter in dead:
            waiter.expect("waiting")
        with backend.enqueue(request("n", 30.0)) as ticket:
            held = backend.renew(held._replace(ttl=2.0), 5.0)  # now: on a busy machine processes start slowly
            assert ticket.poll() is None
            for waiter in dead:
                waiter.kill()
            acquire(ticket)
            assert 2.0 <= boottime() - held.valid_from < 2.4


def test_a_waiter_that_was_woken_and_leaves_wakes_the_next(server: RedisServer, backend: RedisBackend) -> None:
    with opened(server.url) as second, opened(server.url) as third:
        held = take(backend, "n")
        with third.enqueue(request("n", 30.0)) as last, never() as cancel:
            leaving = second.enqueue(request("n", 30.0))
            assert leaving.poll() is None  # behind `last`, had that polled: it has not
            assert last.poll() is None
            backend.release(held, 5.0)
            last.wait(0.05, cancel)
            assert last.poll() is None
            start = boottime()
            leaving.close()
            last.wait(5.0, cancel)
            assert boottime() - start < 0.5
            assert last.poll()


def test_waiters_survive_a_restart_of_the_server(server: RedisServer, backend: RedisBackend) -> None:
    """Without its data: the places in the queue come back with them, in the old order."""
    take(backend, "n", ttl=60.0)
    with ExitStack() as stack:
        first, last = (stack.enter_context(opened(server.url)).enqueue(request("n", 30.0)) for _ in range(2))
        assert first.poll() is None
        assert last.poll() is None
        server.restart()
        server.command("SET", "lock:n", "x", "PX", 600)
        assert last.poll() is None
        assert first.poll() is None
        wait_until(lambda: not server.command("EXISTS", "lock:n"))
        assert last.poll() is None
        assert first.poll()
        last.close()


def test_a_dropped_connection_ends_the_waiting_and_is_made_anew(server: RedisServer, backend: RedisBackend) -> None:
    held = take(backend, "n")
    with opened(server.url) as other, other.enqueue(request("n", 30.0)) as ticket, never() as cancel:
        for _ in range(3):
            assert ticket.poll() is None
            killer = threading.Timer(0.1, server.command, ["CLIENT", "KILL", "TYPE", "pubsub"])
            killer.start()
            start = boottime()
            ticket.wait(10.0, cancel)
            assert 0.05 < boottime() - start < 0.9
            killer.join()
        backend.release(held, 5.0)
        assert acquire(ticket, 0.5)


def test_an_answer_that_is_lost_costs_no_lock(server: RedisServer) -> None:
    """The grant came too late for the one who asked: leaving gives it back."""
    with Proxy(server.port) as proxy, opened(f"redis://127.0.0.1:{proxy.port}") as backend:
        backend.release(take(backend, "n"), 5.0)  # connected, and the scripts are known
        proxy.delay_answers(60.0)
        ticket = backend.enqueue(request("n", 3.0))
        with pytest.raises(Unavailable, match="does not answer"):
            ticket.poll()
        assert server.command("EXISTS", "lock:n") == 1
        proxy.let_pass()
        ticket.close()
        assert set(keys(server)) == {token_key("n")}


def test_a_lost_grant_is_the_same_grant_for_the_next_try(server: RedisServer) -> None:
    with Proxy(server.port) as proxy, opened(f"redis://127.0.0.1:{proxy.port}") as backend:
        backend.release(take(backend, "n"), 5.0)
        proxy.delay_answers(60.0)
        with backend.enqueue(request("n", 3.0)) as ticket:
            with pytest.raises(Unavailable):
                ticket.poll()
            token = server.command("GET", token_key("n"))
            proxy.let_pass()
            before = boottime()
            grant = ticket.poll()
            assert grant is not None
            assert (f"1:{grant.token}".encode(), grant.valid_from >= before) == (token, True)
            assert server.command("PTTL", "lock:n") > 2500


def test_a_request_that_comes_through_late_takes_no_lock(server: RedisServer, backend: RedisBackend) -> None:
    """Its sender has given up: the lock would be nobody's for a TTL."""
    held = take(backend, "n")
    with Proxy(server.port) as proxy, opened(f"redis://127.0.0.1:{proxy.port}") as other:
        ticket = other.enqueue(request("n", 1.5))
        assert ticket.poll() is None
        proxy.delay_requests(1.0)
        with pytest.raises(Unavailable, match="does not answer"):
            ticket.poll()
        ticket.close()
        proxy.let_pass()
        backend.release(held, 5.0)
        until = boottime() + 1.5
        while boottime() < until:
            assert not server.command("EXISTS", "lock:n")
            time.sleep(0.02)


def test_a_server_whose_clock_is_set_is_no_obstacle(backend: RedisBackend) -> None:
    held = take(backend, "n")
    with backend.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        backend.reach.heard(int(time.time() * 1e6) - 3600 * 10**6)  # as if it had been an hour behind when last heard
        assert ticket.poll() is None
        backend.release(held, 5.0)
        assert ticket.poll()


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_an_uncontended_lock_is_one_request(server: RedisServer, backend: RedisBackend) -> None:
    backend.release(take(backend, "n"), 5.0)  # connected, and the scripts are known
    before = server.statistics()
    backend.release(take(backend, "n"), 5.0)
    after = server.statistics()
    sent = {name: after[name] - before.get(name, 0) for name in after if name[8:] in ("evalsha", "eval", "subscribe")}
    assert sent == {"cmdstat_evalsha": 2, "cmdstat_eval": 0, "cmdstat_subscribe": 1}


def test_logging_in_is_one_command(server: RedisServer, backend: RedisBackend) -> None:
    backend.inspect("n", 5.0)
    sent = {name[8:] for name in server.statistics()} - {"ping"}  # of the test itself
    assert sent == {"hello", "eval", *INSPECTION}


def test_a_waiter_sends_at_most_one_request_a_second(server: RedisServer, backend: RedisBackend) -> None:
    take(backend, "n", ttl=60.0)
    waiters, seconds = 10, 6.0
    with ExitStack() as stack, never() as cancel:
        threads = []
        until = boottime() + 100

        def wait(own: RedisBackend) -> None:
            with own.enqueue(request("n", 30.0)) as ticket:
                while boottime() < until:
                    assert ticket.poll() is None
                    ticket.wait(until - boottime(), cancel)

        for _ in range(waiters):
            threads.append(threading.Thread(target=wait, args=[stack.enter_context(opened(server.url))]))
            threads[-1].start()
        wait_until(lambda: len(backend.inspect("n", 5.0).waiters) == waiters)
        before = server.statistics()
        time.sleep(seconds)
        after = server.statistics()
        until = 0.0
        # A command that nobody has sent yet is not in the first of the two.
        sent = [name for name in after if name[8:] in ("evalsha", "eval", "subscribe")]
        requests = sum(after[name] - before.get(name, 0) for name in sent)
        for thread in threads:
            thread.join()
        assert 0.6 < requests / waiters / seconds <= 1.0
        others = sum(after[name] - before.get(name, 0) for name in after) - requests
        assert others / requests < 10  # commands of the scripts


def test_nothing_leaks(server: RedisServer, backend: RedisBackend) -> None:
    """Neither connections nor subscriptions nor keys, over normal ends and conflicts."""

    def once(call: Callable[[RedisBackend], object]) -> None:
        with opened(server.url) as own:
            call(own)

    def hand_over(own: RedisBackend) -> None:
        held = take(backend, "n")
        with own.enqueue(request("n", 30.0)) as winning, own.enqueue(request("n", 30.0)) as leaving:
            assert winning.poll() is None
            assert leaving.poll() is None
            backend.release(held, 5.0)
            own.release(acquire(winning), 5.0)

    for _ in range(20):
        once(hand_over)
        once(lambda own: own.release(take(own, "n"), 5.0))
    wait_until(lambda: server.command("INFO", "clients")["connected_clients"] == 2)  # this question and `backend`
    assert server.command("PUBSUB", "CHANNELS") == []
    assert set(keys(server)) == {token_key("n")}
