"""Waiting on etcd beyond the contract: together with clients of clientv3/concurrency, with leases that are shorter than
the wait, with waiters that vanish, and what is stored."""

from __future__ import annotations

import json
import signal
import threading
from contextlib import ExitStack

import pytest

import etcd_fixtures
from contenders import Contender, acquire, client, never, request, take, try_once
from distlock.backends import etcd_record as stored
from distlock.backends.base import Unavailable
from distlock.backends.etcd import EtcdBackend
from distlock.backends.etcd_ticket import QUEUE_TTL
from distlock.clock import boottime
from etcd_fixtures import etcdctl_lock, nothing_left, opened, queue_of, record_of
from etcd_servers import EtcdMember
from processes import wait_until

one_server = etcd_fixtures.one_server
server = etcd_fixtures.emptied_server
backend = etcd_fixtures.backend


# -- others ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "lock"), [("n", "n"), ("p/1", "p%2F1"), ("замок", "%D0%B7%D0%B0%D0%BC%D0%BE%D0%BA")])
def test_etcdctl_holds_and_we_wait(server: EtcdMember, backend: EtcdBackend, name: str, lock: str) -> None:
    with etcdctl_lock(server, f"/distlock/lock/{lock}") as holder:
        assert try_once(backend, name) is None
        state = backend.inspect(name, 5.0)
        assert (state.held, state.holder) == (True, None)
        assert state.ttl == 10.0  # etcdctl's
        assert state.expires_in is not None
        assert [one for one in backend.locks(5.0) if one.name == name] == [state]
        with backend.enqueue(request(name, 30.0)) as ticket:
            assert ticket.poll() is None
            released = boottime()
            holder.terminate()
            grant = acquire(ticket)
            assert boottime() - released < 1.0
        assert grant.token is not None
        assert grant.token > (state.token or 0)
        backend.release(grant, 5.0)


def test_we_hold_and_etcdctl_waits(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "n")
    with etcdctl_lock(server, "/distlock/lock/n", "echo", "had it", waits=True) as waiter:
        assert waiter.poll() is None
        backend.renew(grant, 5.0)
        backend.release(grant, 5.0)
        assert waiter.stdout
        assert waiter.stdout.readline() == "had it\n"
        assert waiter.wait(5) == 0
    assert server.keys(queue_of("n")) == []


def test_first_come_first_served_with_etcdctl_in_between(server: EtcdMember, backend: EtcdBackend) -> None:
    held = take(backend, "n")
    with opened(server.url) as first, opened(server.url) as last, ExitStack() as stack:
        before = stack.enter_context(first.enqueue(request("n", 30.0)))
        assert before.poll() is None
        foreign = stack.enter_context(etcdctl_lock(server, "/distlock/lock/n", waits=True))
        behind = stack.enter_context(last.enqueue(request("n", 30.0)))
        assert behind.poll() is None
        backend.release(held, 5.0)
        assert behind.poll() is None
        grant = acquire(before)
        assert behind.poll() is None
        first.release(grant, 5.0)
        assert foreign.stdout
        assert foreign.stdout.readline().startswith(queue_of("n"))
        assert behind.poll() is None
        foreign.terminate()
        last.release(acquire(behind), 5.0)


def test_a_lock_beside_ours_is_none_of_ours(server: EtcdMember, backend: EtcdBackend) -> None:
    """A name that is not encoded, or no name at all."""
    for key in (
        "/distlock/lock/a b/1",
        "/distlock/lock/%2f/1",
        "/distlock/lock//1",
        "/distlock/lock/x",
        "/distlock/locks",
    ):
        server.ctl("put", key, "x")
    server.ctl("put", "/distlock/token/a b", "1:7")
    assert list(backend.locks(5.0)) == []
    assert try_once(backend, "a b")


# -- leases ------------------------------------------------------------------------------------------------------------


def test_a_waiter_outlives_its_lease_while_it_waits(server: EtcdMember, backend: EtcdBackend) -> None:
    """Both of them: that of its place, and the one that it asked for."""
    held = take(backend, "n")
    with opened(server.url) as other, other.enqueue(request("n", 3.0)) as ticket:
        assert ticket.poll() is None
        before = server.keys(queue_of("n"))
        done: list[float] = []

        def wait() -> None:
            acquire(ticket, 30.0)
            done.append(boottime())

        thread = threading.Thread(target=wait)
        thread.start()
        until = boottime() + 2 * QUEUE_TTL + 1.0
        renewed = held
        while boottime() < until:
            renewed = backend.renew(renewed, 5.0)
            assert server.keys(queue_of("n")) == before
            assert not done
        released = boottime()
        backend.release(renewed, 5.0)
        thread.join(5)
        assert done[0] - released < 1.0


def test_a_granted_waiter_has_the_lease_it_asked_for(server: EtcdMember, backend: EtcdBackend) -> None:
    held = take(backend, "n")
    with backend.enqueue(request("n", 60.0)) as ticket:
        assert ticket.poll() is None
        assert server.leases()  # one for the place, one for the lock
        backend.release(held, 5.0)
        asked = boottime()
        grant = acquire(ticket)
    assert grant.valid_from >= asked - 6.0
    state = backend.inspect("n", 5.0)
    assert state.ttl == 60.0
    assert (state.expires_in or 0) > 50.0
    assert state.token == grant.token
    backend.release(grant, 5.0)
    assert nothing_left(server, record_of("n"))


def test_frozen_waiters_are_passed_within_five_seconds(server: EtcdMember, backend: EtcdBackend) -> None:
    """All together; one that thaws queues anew."""
    held = take(backend, "n")
    with ExitStack() as stack:
        frozen = [stack.enter_context(Contender(server.url, "n")) for _ in range(3)]
        next_one = stack.enter_context(Contender(server.url, "n"))
        for waiter in (*frozen, next_one):
            waiter.expect("waiting")
        for waiter in frozen:
            waiter.signal(signal.SIGSTOP)
        released = boottime()
        backend.release(held, 5.0)
        _, at = next_one.granted()
        assert at - released < 5.0
        frozen[1].signal(signal.SIGCONT)
        wait_until(lambda: len(backend.inspect("n", 5.0).waiters) == 1)
        next_one.tell("release")
        frozen[1].granted(2.0)


def test_a_waiter_whose_key_is_removed_queues_anew(server: EtcdMember, backend: EtcdBackend) -> None:
    held = take(backend, "n")
    with opened(server.url) as other, other.enqueue(request("n", 30.0)) as ticket, never() as cancel:
        assert ticket.poll() is None
        (mine,) = [key for key in server.keys(queue_of("n")) if '"holds":false' in server.value(key)]
        server.ctl("del", mine)
        assert ticket.poll() is None
        assert len(server.keys(queue_of("n"))) == 2
        assert mine not in server.keys(queue_of("n"))
        ticket.wait(0.1, cancel)
        backend.release(held, 5.0)
        other.release(acquire(ticket), 5.0)
    assert nothing_left(server, record_of("n"))


def test_each_waiter_is_woken_by_its_predecessor_only(server: EtcdMember, backend: EtcdBackend) -> None:
    held = take(backend, "n")
    with ExitStack() as stack:
        tickets = []
        for _ in range(3):
            tickets.append(stack.enter_context(stack.enter_context(opened(server.url)).enqueue(request("n", 30.0))))
            assert tickets[-1].poll() is None
        woken: list[int] = []

        def wait(index: int) -> None:
            with never() as cancel:
                tickets[index].wait(1.0, cancel)
            if boottime() < until:
                woken.append(index)

        threads = [threading.Thread(target=wait, args=(index,)) for index in range(3)]
        until = boottime() + 0.9
        for thread in threads:
            thread.start()
        wait_until(lambda: server.tells("etcd_debugging_mvcc_watcher_total") == 3)
        backend.release(held, 5.0)
        for thread in threads:
            thread.join()
        assert woken == [0]


# -- what is stored ----------------------------------------------------------------------------------------------------


def test_what_is_stored(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "p/1 ж", owner="me")
    (key,) = server.keys("/distlock/lock/")
    assert key == f"/distlock/lock/p%2F1%20%D0%B6/{server.lease_of(key)}"
    assert backend.places("p/1 ж") == tuple(
        f"/distlock/{kind}/p%2F1%20%D0%B6{end}"
        for kind, end in (("lock", "/"), ("token", ""), ("success", ""), ("mark", "/"))
    )
    layout, version, told = server.value(key).split(":", 2)
    assert (layout, version) == ("distlock", "1")
    assert json.loads(told)["owner"] == "me"
    backend.release(grant, 5.0)
    assert nothing_left(server, "/distlock/token/p%2F1%20%D0%B6")
    assert backend.inspect("p/1 ж", 5.0).token == grant.token


def test_nothing_is_left_of_a_hundred_conflicts_and_a_hundred_grants(server: EtcdMember, backend: EtcdBackend) -> None:
    with opened(server.url) as other:
        held = take(other, "n")
        for _ in range(100):
            assert try_once(backend, "n") is None
        assert len(server.leases()) == 1
        other.release(held, 5.0)
        tokens = []
        for _ in range(100):
            grant = take(backend, "n")
            tokens.append(grant.token or 0)
            backend.release(grant, 5.0)
        assert tokens == sorted(set(tokens))
    assert nothing_left(server, record_of("n"))


def test_tokens_grow_with_the_grants_also_of_those_who_queued_early(backend: EtcdBackend) -> None:
    held = take(backend, "n")
    tokens = [held.token or 0]
    with ExitStack() as stack:
        tickets = [stack.enter_context(backend.enqueue(request("n", 30.0))) for _ in range(4)]
        for ticket in tickets:
            assert ticket.poll() is None
        tickets[1].close()
        for ticket in (tickets[0], tickets[2], tickets[3]):
            backend.release(held, 5.0)
            held = acquire(ticket)
            tokens.append(held.token or 0)
            assert backend.inspect("n", 5.0).token == held.token
    backend.release(held, 5.0)
    tokens.append(take(backend, "n").token or 0)
    assert tokens == sorted(set(tokens))


@pytest.mark.parametrize("held", [False, True])
def test_an_unknown_layout_is_never_free(server: EtcdMember, backend: EtcdBackend, held: bool) -> None:
    server.ctl("put", record_of("n"), "3:77")
    if held:
        server.ctl("put", f"{queue_of('n')}1", "distlock:2:x")
    for ask in (lambda: try_once(backend, "n"), lambda: backend.inspect("n", 5.0)):
        with pytest.raises(Unavailable, match="layout") as raised:
            ask()
        assert raised.value.permanent
    take(backend, "other")
    found: list[str] = []
    with pytest.raises(Unavailable, match="layout"):
        found.extend(state.name for state in backend.locks(5.0))
    assert found == ["other"]
    assert server.value(record_of("n")) == "3:77"


def test_a_key_that_somebody_put_without_a_lease_is_a_foreign_holder(server: EtcdMember, backend: EtcdBackend) -> None:
    server.ctl("put", f"{queue_of('n')}1", "")
    state = backend.inspect("n", 5.0)
    assert (state.held, state.holder, state.ttl, state.expires_in) == (True, None, None, None)
    assert try_once(backend, "n") is None


def test_a_clock_before_2001_does_not_make_us_a_stranger() -> None:
    made = stored.encode(stored.Entry(client("me")._replace(since=0.0), 30.0, holds=True))
    entry = stored.decode(b"k", stored.dated(made, 12.5))
    assert entry is not None
    assert (entry.client.since, entry.client.owner, entry.holds) == (12.5, "me", True)
