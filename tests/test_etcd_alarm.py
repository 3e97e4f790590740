"""A holder is told of its own key, and only ever asks because of it."""

from __future__ import annotations

import select

import pytest

import etcd_fixtures
from contenders import acquire, never, request, take
from distlock.backends.base import LeaseLost, Revoked
from distlock.backends.etcd import EtcdBackend
from etcd_fixtures import alarm_of, opened, queue_of
from etcd_servers import EtcdMember
from processes import wait_until

one_server = etcd_fixtures.one_server
server = etcd_fixtures.emptied_server
backend = etcd_fixtures.backend


def rings(alarm: int, seconds: float = 0.0) -> bool:
    return bool(select.select([alarm], [], [], seconds)[0])


@pytest.mark.parametrize("how", ["deleted", "revoked"])
def test_what_is_taken_away_rings(server: EtcdMember, backend: EtcdBackend, how: str) -> None:
    grant = take(backend, "n")
    alarm = alarm_of(backend, grant)
    assert not rings(alarm, 0.2)
    (key,) = server.keys(queue_of("n"))
    if how == "deleted":
        server.ctl("del", key)
    else:
        server.ctl("lease", "revoke", server.lease_of(key))
    assert rings(alarm, 5.0)
    with pytest.raises(LeaseLost):
        backend.renew(grant, 5.0)
    assert not rings(alarm)


def test_what_was_taken_away_before_we_looked_rings(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "n")
    server.ctl("del", server.keys(queue_of("n"))[0])
    assert rings(alarm_of(backend, grant), 5.0)


def test_a_grant_and_a_renewal_do_not_ring(backend: EtcdBackend) -> None:
    held = take(backend, "n")
    with backend.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        backend.release(held, 5.0)
        grant = acquire(ticket)  # which moved its key to another lease
    alarm = alarm_of(backend, grant)
    backend.renew(grant, 5.0)
    assert backend.alarm(grant) == alarm
    assert not rings(alarm, 0.3)


def test_a_key_that_somebody_has_put_costs_a_renewal(server: EtcdMember, backend: EtcdBackend) -> None:
    """An operator's word is a value in it."""
    grant = take(backend, "n")
    alarm = alarm_of(backend, grant)
    server.ctl("put", "--ignore-value", "--ignore-lease", server.keys(queue_of("n"))[0])
    assert rings(alarm, 5.0)
    backend.renew(grant, 5.0)
    alarm = alarm_of(backend, grant)
    assert not rings(alarm, 0.3)
    with opened(server.url) as other:
        assert other.revoke("n", grant.token, None, "alice@ops", 5.0, now=False)
        assert rings(alarm, 5.0)
    with pytest.raises(Revoked, match="alice@ops"):
        backend.renew(grant, 5.0)


def test_a_revocation_before_we_looked_rings(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "n")
    with opened(server.url) as other:
        assert other.revoke("n", grant.token, None, "alice@ops", 5.0, now=False)
    assert rings(alarm_of(backend, grant), 5.0)


def test_a_dropped_connection_rings_and_the_watch_is_made_anew(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "n", ttl=60.0)
    alarm = alarm_of(backend, grant)
    server.restart()
    wait_until(server.is_leader)
    assert rings(alarm, 5.0)
    backend.renew(grant, 5.0)
    alarm = alarm_of(backend, grant)
    assert not rings(alarm, 0.2)
    server.ctl("del", server.keys(queue_of("n"))[0])
    assert rings(alarm, 5.0)


def test_a_revision_that_was_compacted_costs_a_renewal(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "n")
    for _ in range(3):
        server.ctl("put", "x", "y")
    server.ctl("compact", str(int(grant.token or 0) + 3))
    assert rings(alarm_of(backend, grant), 5.0)  # the watch began before that
    backend.renew(grant, 5.0)
    alarm = alarm_of(backend, grant)
    assert not rings(alarm, 0.3)
    server.ctl("del", server.keys(queue_of("n"))[0])
    assert rings(alarm, 5.0)


def test_a_compacted_revision_does_not_stop_a_waiter(server: EtcdMember, backend: EtcdBackend) -> None:
    held = take(backend, "n")
    with opened(server.url) as other, other.enqueue(request("n", 30.0)) as ticket, never() as cancel:
        assert ticket.poll() is None
        for _ in range(3):
            server.ctl("put", "x", "y")
        server.ctl("compact", str(int(held.token or 0) + 4))
        ticket.wait(0.5, cancel)
        assert ticket.poll() is None
        ticket.wait(0.2, cancel)
        backend.release(held, 5.0)
        other.release(acquire(ticket, 2.0), 5.0)


def test_a_backend_that_did_not_get_the_grant_has_no_alarm(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "n")
    with opened(server.url) as other:
        assert other.alarm(grant) is None
