"""Answers that are not what was asked for, and answers that are lost although the server has acted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import etcd_fixtures
from contenders import acquire, request, take, try_once
from distlock.backends.base import LeaseLost, Unavailable
from distlock.backends.etcd_driver import pb
from distlock.clock import boottime
from etcd_fixtures import nothing_left, opened, record_of
from etcd_servers import EtcdMember
from grpc_proxy import GrpcProxy, grpc_proxy

one_server = etcd_fixtures.one_server
server = etcd_fixtures.emptied_server


@pytest.fixture
def proxy(server: EtcdMember) -> Iterator[GrpcProxy]:
    with grpc_proxy(server.place) as one:
        yield one


def url_of(proxy: GrpcProxy) -> str:
    return f"etcd://127.0.0.1:{proxy.port}"


def test_a_server_that_grants_more(tmp_path: Path) -> None:
    """The smallest TTL of a server with a long election time-out is above ours: we keep to what was asked for."""
    slow = EtcdMember(tmp_path / "slow", options=("--heartbeat-interval", "300", "--election-timeout", "3000"))
    with slow.running(), opened(slow.url) as backend:
        grant = take(backend, "n", ttl=3.0)
        assert grant.ttl == 3.0
        state = backend.inspect("n", 5.0)
        assert state.ttl == 3.0
        assert state.expires_in is not None
        assert state.expires_in >= 3.0
        assert backend.renew(grant, 3.0).ttl == 3.0
        backend.release(grant, 5.0)


@pytest.mark.parametrize("where", ["LeaseGrant", "LeaseKeepAlive"])
def test_a_server_that_grants_less(server: EtcdMember, proxy: GrpcProxy, where: str) -> None:
    """What it said counts, at the grant and at each renewal."""

    def shorten(name: str, answer: bytes) -> bytes:
        if name != where:
            return answer
        changed = getattr(pb, f"{name}Response").FromString(answer)
        changed.TTL = 7
        return bytes(changed.SerializeToString())

    proxy.change = shorten
    with opened(url_of(proxy)) as backend:
        grant = take(backend, "n", ttl=30.0)
        assert grant.ttl == (7.0 if where == "LeaseGrant" else 30.0)
        assert backend.renew(grant, 5.0).ttl == 7.0
        backend.release(grant, 5.0)
    assert nothing_left(server, record_of("n"))


def test_a_keep_alive_that_says_no(proxy: GrpcProxy) -> None:
    with opened(url_of(proxy)) as backend:
        grant = take(backend, "n")

        def refuse(name: str, answer: bytes) -> bytes:
            return answer if name != "LeaseKeepAlive" else bytes(pb.LeaseKeepAliveResponse().SerializeToString())

        proxy.change = refuse
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)


def test_a_keep_alive_of_another_member_is_not_believed(proxy: GrpcProxy) -> None:
    """As behind a balancer that connects us to somebody else between the two requests."""
    with opened(url_of(proxy)) as backend:
        grant = take(backend, "n")

        def another(name: str, answer: bytes) -> bytes:
            if name != "LeaseKeepAlive":
                return answer
            changed = pb.LeaseKeepAliveResponse.FromString(answer)
            changed.header.member_id += 1
            return bytes(changed.SerializeToString())

        proxy.change = another
        with pytest.raises(Unavailable, match="another member"):
            backend.renew(grant, 5.0)


@pytest.mark.parametrize("lost", ["LeaseGrant", "Txn", "LeaseRevoke"])
def test_a_lost_answer_at_a_free_lock(server: EtcdMember, proxy: GrpcProxy, lost: str) -> None:
    with opened(url_of(proxy)) as backend:
        proxy.lose[lost] = 1
        before = boottime()
        try:
            grant = take(backend, "n")
        except Unavailable:
            grant = take(backend, "n")
        assert before <= grant.valid_from
        assert try_once(backend, "n") is None
        assert backend.inspect("n", 5.0).token == grant.token
        backend.release(backend.renew(grant, 5.0), 5.0)
    assert nothing_left(server, record_of("n"))


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("lost", ["LeaseGrant", "Txn", "LeaseKeepAlive"])
def test_a_lost_answer_while_queueing(server: EtcdMember, proxy: GrpcProxy, lost: str, after: int) -> None:
    """Any of the first few: the place is had once, the token is its own, and nothing is left."""
    with opened(server.url) as backend, opened(url_of(proxy)) as other:
        held = take(backend, "n")
        ticket = other.enqueue(request("n", 3.0))
        if after == 0:
            proxy.lose[lost] = 1
        try:
            assert ticket.poll() is None
        except Unavailable:
            assert ticket.poll() is None
        if after == 1:
            proxy.lose[lost] = 1
        assert ticket.poll() is None
        assert len(backend.inspect("n", 5.0).waiters) == 1
        backend.release(held, 5.0)
        if after == 2:
            proxy.lose[lost] = 1
        grant = acquire(ticket)
        ticket.close()
        state = backend.inspect("n", 5.0)
        assert state.token == grant.token
        assert state.holder is not None
        assert (grant.token or 0) > (held.token or 0)
        assert state.waiters == ()
        other.release(grant, 5.0)
    assert nothing_left(server, record_of("n"))


def test_a_waiter_asks_about_once_a_second(server: EtcdMember, proxy: GrpcProxy) -> None:
    """The proxy has no watches: this is the fallback, which asks more often than a watch has to."""
    with opened(server.url) as backend, opened(url_of(proxy)) as other:
        held = take(backend, "n")
        with other.enqueue(request("n", 30.0)) as ticket:
            assert ticket.poll() is None
            proxy.seen.clear()
            start = boottime()
            with pytest.raises(AssertionError, match="no grant"):
                acquire(ticket, 6.0)
            asked = [name for name in proxy.seen if name != "Watch"]
            assert len(asked) / (boottime() - start) < 2.5
        backend.release(held, 5.0)
