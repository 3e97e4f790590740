"""An operator takes a lock away: from the one holder that was meant, and nobody else gets it before that is dead."""

from __future__ import annotations

import select

import pytest

from contenders import Contender, acquire, request, take, try_once
from distlock.backends.base import Backend, Grant, LeaseLost, Revoked
from distlock.clock import boottime

from .engines import Engine

BY = "alice@ops1"


def revoke(backend: Backend, grant: Grant, *, now: bool = False) -> bool:
    owner = grant.owner if grant.token is None else None
    return backend.revoke(grant.name, grant.token, owner, BY, 5.0, now=now)


def test_the_holder_is_told_and_the_lock_is_its_own_until_it_is_released(
    backend: Backend, other: Backend, name: str
) -> None:
    grant = take(backend, name)
    assert revoke(other, grant)
    state = other.inspect(name, 5.0)
    assert (state.held, state.revoked_by) == (True, BY)
    assert try_once(other, name) is None
    for _ in range(2):
        with pytest.raises(Revoked, match=BY):
            backend.renew(grant, 5.0)
    assert revoke(other, grant), "a second time is no error"
    with other.enqueue(request(name, 30.0)) as ticket:
        assert ticket.poll() is None
        backend.release(grant, 5.0)
        second = acquire(ticket, 5.0)
    assert other.inspect(name, 5.0).revoked_by is None
    other.renew(second, 5.0)


def test_without_a_release_it_ends_with_its_ttl(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name, ttl=2 * engine.ttl)
    assert revoke(other, grant)
    with other.enqueue(request(name, 30.0)) as ticket:
        until = boottime() + engine.ttl
        while boottime() < until:
            assert ticket.poll() is None
            with pytest.raises(LeaseLost):
                backend.renew(grant, 5.0)
        acquire(ticket, 2 * engine.ttl + 5.0)


def test_now_means_now(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name)
    with other.enqueue(request(name, 30.0)) as ticket:
        assert ticket.poll() is None
        assert revoke(other, grant, now=True)
        second = acquire(ticket, 3.0)
    with pytest.raises(LeaseLost):
        backend.renew(grant, 5.0)
    backend.release(grant, 5.0)
    other.renew(second, 5.0)


@pytest.mark.parametrize("now", [False, True])
def test_nobody_else_is_touched(engine: Engine, backend: Backend, other: Backend, name: str, now: bool) -> None:
    """A holder that was seen a while ago and is no more; a token or owner that never was; a lock that is free."""
    late = take(backend, name, ttl=engine.ttl)
    present = take(other, name)
    assert not revoke(backend, late, now=now)
    if present.token is None:
        assert not backend.revoke(name, None, "nobody", BY, 5.0, now=now)
    else:
        for token in (present.token - 1, present.token + 1, 0):
            assert not backend.revoke(name, token, None, BY, 5.0, now=now)
    other.renew(present, 5.0)
    other.release(present, 5.0)
    assert not revoke(backend, present, now=now)
    assert not backend.revoke(f"{name} never seen", 1, None, BY, 5.0, now=now)
    assert not [state for state in backend.locks(5.0) if state.name == f"{name} never seen"]
    assert try_once(other, name)


def test_the_next_grant_is_not_revoked(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name)
    assert revoke(other, grant)
    backend.release(grant, 5.0)
    second = take(backend, name, owner=grant.owner)
    assert backend.inspect(name, 5.0).revoked_by is None
    backend.renew(second, 5.0)


def test_a_kept_lock_is_freed(backend: Backend, other: Backend, name: str) -> None:
    """Nobody works under it."""
    if not backend.keeps:
        return
    grant = take(backend, name)
    backend.release(grant, 5.0, (), 60.0)
    assert revoke(other, grant)
    assert try_once(other, name)


def test_the_alarm_goes_off(backend: Backend, other: Backend, name: str) -> None:
    """Where the engine has one: a holder that renews every twenty minutes is told at once."""
    grant = take(backend, name)
    alarm = backend.alarm(grant)
    if alarm is None:
        return
    assert not select.select([alarm], [], [], 0.2)[0]
    assert revoke(other, grant)
    assert select.select([alarm], [], [], 5.0)[0]
    with pytest.raises(Revoked):
        backend.renew(grant, 5.0)


def test_a_dead_holder_is_no_obstacle(url: str, backend: Backend, name: str) -> None:
    with Contender(url, name) as crashing:
        token, _ = crashing.granted()
        crashing.kill()
    assert backend.revoke(name, token or None, None if token else crashing.owner, BY, 5.0, now=True)
    assert take(backend, name, seconds=3.0)
