"""Several holders on etcd beyond the contract: with clients of clientv3/concurrency, in a rush, with answers that are
lost, and what is stored."""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

import etcd_fixtures
from contenders import acquire, request, take, try_once
from distlock.backends.base import Grant, LeaseLost, Unavailable
from distlock.backends.etcd import EtcdBackend
from etcd_fixtures import alarm_of, etcdctl_lock, nothing_left, opened, queue_of, record_of
from etcd_servers import EtcdMember
from grpc_proxy import grpc_proxy

_ASKED = 'grpc_server_handled_total{grpc_code="OK",grpc_method="%s",grpc_service="etcdserverpb.%s",grpc_type="unary"}'


one_server = etcd_fixtures.one_server
server = etcd_fixtures.emptied_server
backend = etcd_fixtures.backend


# -- others ------------------------------------------------------------------------------------------------------------


def test_etcdctl_holds_and_none_of_us_does(server: EtcdMember, backend: EtcdBackend) -> None:
    with etcdctl_lock(server, "/distlock/lock/n") as holder, backend.enqueue(request("n", 30.0, holders=3)) as ticket:
        assert ticket.poll() is None
        assert try_once(backend, "n", holders=3) is None
        holder.terminate()
        assert acquire(ticket, 2.0).holder_index == 0


def test_etcdctl_waits_for_all_of_us_and_is_not_overtaken(server: EtcdMember, backend: EtcdBackend) -> None:
    grants = [take(backend, "n", holders=3) for _ in range(2)]
    with etcdctl_lock(server, "/distlock/lock/n", waits=True) as foreign:
        assert try_once(backend, "n", holders=3) is None  # though a place is free
        backend.release(grants[0], 5.0)
        assert foreign.stdout
        assert not select.select([foreign.stdout], [], [], 0.5)[0]
        with backend.enqueue(request("n", 30.0, holders=3)) as ticket:
            assert ticket.poll() is None
            backend.release(grants[1], 5.0)
            assert foreign.stdout.readline().startswith(queue_of("n"))
            assert ticket.poll() is None
            foreign.terminate()
            acquire(ticket, 2.0)


def test_who_waited_for_one_gets_no_smaller_token_than_several_had(server: EtcdMember, backend: EtcdBackend) -> None:
    """A plain place is a token. Behind a foreign holder its waiter may not see that several had the lock meanwhile."""
    with opened(server.url) as other, ExitStack() as stack:
        foreign = stack.enter_context(etcdctl_lock(server, "/distlock/lock/n"))
        many = stack.enter_context(backend.enqueue(request("n", 30.0, holders=2)))
        alone = stack.enter_context(other.enqueue(request("n", 30.0)))
        assert many.poll() is None
        assert alone.poll() is None
        foreign.terminate()
        grant = acquire(many)
        backend.release(grant, 5.0)
        assert (acquire(alone).token or 0) > (grant.token or 0)


# -- a rush ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("holders", "comers"), [(8, 8), (3, 9)])
def test_all_come_at_once(server: EtcdMember, holders: int, comers: int) -> None:
    """Nobody is told that the server is unavailable, only because the others are in its way."""
    held: list[int] = []
    start = threading.Barrier(comers)

    def come() -> None:
        with opened(server.url) as backend:
            start.wait()
            with backend.enqueue(request("n", 30.0, holders=holders)) as ticket:
                grant = acquire(ticket, 20.0)
            assert grant.holder_index not in held
            held.append(grant.holder_index)
            assert len(held) <= holders
            if comers > holders:
                backend.renew(grant, 5.0)
                held.remove(grant.holder_index)
                backend.release(grant, 5.0)

    with ThreadPoolExecutor(comers) as pool:
        for one in [pool.submit(come) for _ in range(comers)]:
            one.result(40)
    assert sorted(held) == (list(range(holders)) if comers == holders else [])
    assert nothing_left(server, record_of("n")) == (comers > holders)


def test_a_dead_waiter_whose_turn_has_come_is_passed(server: EtcdMember, backend: EtcdBackend) -> None:
    """It has a place, and leaves the others theirs."""
    grants = [take(backend, "n", holders=2) for _ in range(2)]
    with opened(server.url) as other, ExitStack() as stack:
        asleep = stack.enter_context(backend.enqueue(request("n", 30.0, holders=2)))
        awake = stack.enter_context(other.enqueue(request("n", 30.0, holders=2)))
        assert asleep.poll() is None
        assert awake.poll() is None
        for grant in grants:
            backend.release(grant, 5.0)
        assert awake.poll() is not None
        assert asleep.poll() is not None
        assert try_once(other, "n", holders=2) is None


# -- answers that are lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["LeaseGrant", "Txn", "LeaseRevoke"])
def test_a_lost_answer_at_a_place_that_is_free(server: EtcdMember, lost: str) -> None:
    with grpc_proxy(server.place) as proxy, opened(server.url) as other:
        stays = take(other, "n", holders=2)
        with opened(f"etcd://127.0.0.1:{proxy.port}") as backend:
            with backend.enqueue(request("n", 30.0, holders=2)) as ticket:
                proxy.lose[lost] = 1
                grant = _in_the_end(ticket.poll)
            assert grant is not None
            holdings = other.inspect("n", 5.0).holdings
            assert [(one.token, one.holder_index) for one in holdings] == [(stays.token, 0), (grant.token, 1)]
            backend.release(backend.renew(grant, 5.0), 5.0)
        other.release(stays, 5.0)
    assert nothing_left(server, record_of("n"))


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("lost", ["LeaseGrant", "Txn"])
def test_a_lost_answer_while_queueing(server: EtcdMember, lost: str, after: int) -> None:
    """The place is had once, whichever answer is lost."""
    with grpc_proxy(server.place) as proxy, opened(server.url) as other:
        held = [take(other, "n", holders=2) for _ in range(2)]
        with opened(f"etcd://127.0.0.1:{proxy.port}") as backend:
            ticket = backend.enqueue(request("n", 3.0, holders=2))
            proxy.lose[lost] = 1 if after == 0 else 0
            assert _in_the_end(ticket.poll) is None
            proxy.lose[lost] = 1 if after == 1 else 0
            assert _in_the_end(ticket.poll) is None
            assert len(other.inspect("n", 5.0).waiters) == 1
            other.release(held[0], 5.0)
            proxy.lose[lost] = 1 if after == 2 else 0
            grant = acquire(ticket)
            ticket.close()
            assert [one.token for one in other.inspect("n", 5.0).holdings] == [grant.token, held[1].token]
            backend.release(grant, 5.0)
        other.release(held[1], 5.0)
    assert nothing_left(server, record_of("n"))


def _in_the_end(poll: Callable[[], Grant | None]) -> Grant | None:
    try:
        return poll()
    except Unavailable:
        return poll()


# -- what is stored, and what it costs ---------------------------------------------------------------------------------


def test_what_is_stored(server: EtcdMember, backend: EtcdBackend) -> None:
    grants = [take(backend, "a b", holders=2) for _ in range(2)]
    queue = server.keys(queue_of("a%20b"))
    assert len(queue) == 2
    for grant in grants:
        key = f"{record_of('a%20b')}/{grant.holder_index}"
        assert server.value(key) == "1:2"
        assert server.lease_of(key) in {key.rpartition("/")[2] for key in queue}
    assert server.value(record_of("a%20b")) == "2:"
    for grant in grants:
        backend.release(grant, 5.0)
    assert nothing_left(server, record_of("a%20b"))
    plain = take(backend, "a b")
    assert server.value(record_of("a%20b")) == "1:"
    backend.release(plain, 5.0)


def test_an_index_that_is_gone_is_a_lost_lease(server: EtcdMember, backend: EtcdBackend) -> None:
    """Somebody else may have it."""
    grant, stays = (take(backend, "n", holders=2) for _ in range(2))
    server.ctl("del", f"{record_of('n')}/0")
    with pytest.raises(LeaseLost):
        backend.renew(grant, 5.0)
    backend.renew(stays, 5.0)


@pytest.mark.parametrize("index", [0, 1])
def test_the_alarm_of_one_goes_off(server: EtcdMember, backend: EtcdBackend, index: int) -> None:
    grants = [take(backend, "n", holders=2) for _ in range(2)]
    alarms = [alarm_of(backend, grant) for grant in grants]
    server.ctl("lease", "revoke", server.lease_of(f"{record_of('n')}/{index}"))
    assert select.select(alarms, [], [], 5.0)[0] == [alarms[index]]
    with pytest.raises(LeaseLost):
        backend.renew(grants[index], 5.0)
    backend.renew(grants[1 - index], 5.0)


def test_an_unknown_layout_is_never_a_free_place(server: EtcdMember, backend: EtcdBackend) -> None:
    take(backend, "n", holders=3)
    for key, value in ((f"{queue_of('n')}1", "distlock:2:x"), (f"{record_of('n')}/1", "3:2"), (record_of("n"), "3:1")):
        before = server.value(key)
        server.ctl("put", key, value)
        with pytest.raises(Unavailable, match="layout") as caught:
            try_once(backend, "n", holders=3)
        assert caught.value.permanent
        server.ctl(*(("put", key, before) if before else ("del", key)))
    assert try_once(backend, "n", holders=3) is not None


@pytest.mark.parametrize(("holders", "transactions"), [(1, 2), (5, 2)])
def test_a_free_lock_costs_no_more_for_being_for_several(
    server: EtcdMember, backend: EtcdBackend, holders: int, transactions: int
) -> None:
    """A lease, a grant, a release, and the end of the lease: no other request."""
    backend.release(take(backend, "n", holders=holders), 5.0)  # what there is of a record is known only then
    kinds = (("Txn", "KV"), ("Range", "KV"), ("LeaseGrant", "Lease"), ("LeaseRevoke", "Lease"))

    def asked() -> list[float]:
        return [max(server.tells(_ASKED % kind), 0.0) for kind in kinds]

    before = asked()
    backend.release(take(backend, "n", holders=holders), 5.0)
    assert [now - then for now, then in zip(asked(), before, strict=True)] == [transactions, 0, 1, 1]


def test_who_waited_for_one_behind_one_of_several_gets_a_greater_token(backend: EtcdBackend) -> None:
    grants = [take(backend, "n", holders=2) for _ in range(2)]
    with backend.enqueue(request("n", 30.0, holders=2)) as one_of_several:
        assert one_of_several.poll() is None
        for grant in grants:
            backend.release(grant, 5.0)
        with backend.enqueue(request("n", 30.0)) as plain:  # nobody holds it just now
            assert plain.poll() is None
            first = acquire(one_of_several, 5.0)
            backend.release(first, 5.0)
            second = acquire(plain, 5.0)
    assert first.token
    assert second.token
    assert first.token < second.token


def test_an_index_that_outlives_its_place_in_the_queue_is_had_when_it_ends(
    server: EtcdMember, backend: EtcdBackend
) -> None:
    gone = take(backend, "n", 2.0, holders=2)
    take(backend, "n", 30.0, holders=2)
    with backend.enqueue(request("n", 30.0, holders=2)) as ticket:
        assert ticket.poll() is None
        (key,) = [key for key in server.keys("/distlock/lock/n/") if gone.owner in server.value(key)]
        server.ctl("del", key)
        assert acquire(ticket, 8.0).holder_index == gone.holder_index
