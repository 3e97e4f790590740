"""What operators see."""

from __future__ import annotations

import time
from contextlib import ExitStack

from contenders import client, request, take
from distlock.backends.base import Backend, LockState, Request

from .engines import Engine


def test_a_name_never_seen_is_free_and_leaves_no_record(backend: Backend, name: str) -> None:
    assert backend.inspect(name, 5.0) == LockState(name, False, None, None, None, None, ())
    assert name not in [state.name for state in backend.locks(5.0)]


def test_a_held_lock_shows_holder_token_expiry_and_waiters_in_order(
    backend: Backend, other: Backend, name: str
) -> None:
    asked = client(label="nightly")
    with backend.enqueue(Request(name, 20.0, asked)) as ticket:
        grant = ticket.poll()
    assert grant is not None
    with ExitStack() as stack:
        waiting = [request(name, 30.0) for _ in range(3)]
        for one in waiting:
            assert stack.enter_context(other.enqueue(one)).poll() is None
        for state in (backend.inspect(name, 5.0), next(s for s in other.locks(5.0) if s.name == name)):
            assert state.held
            assert state.token == grant.token
            assert state.ttl == 20.0
            assert state.expires_in is not None
            assert 15.0 < state.expires_in <= 20.0
            holder = state.holder
            assert holder is not None
            assert (holder.owner, holder.host, holder.pid) == (asked.owner, asked.host, asked.pid)
            assert (holder.user, holder.command, holder.label) == (asked.user, asked.command, asked.label)
            assert abs(holder.since - time.time()) < 60
            assert [waiter.owner for waiter in state.waiters] == [one.client.owner for one in waiting]
    assert backend.inspect(name, 5.0).waiters == ()


def test_a_released_lock_keeps_only_its_token(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name)
    backend.release(grant, 5.0)
    for state in (other.inspect(name, 5.0), next(s for s in other.locks(5.0) if s.name == name)):
        assert state == LockState(name, False, grant.token, None, None, None, ())


def test_an_expired_lock_is_free(engine: Engine, backend: Backend, name: str) -> None:
    grant = take(backend, name, ttl=engine.ttl)
    while (state := backend.inspect(name, 5.0)).held:
        assert state.expires_in is not None
        assert 0 < state.expires_in <= engine.ttl
    assert (state.token, state.holder, state.expires_in) == (grant.token, None, None)


def test_every_lock_is_listed_once(backend: Backend, name: str) -> None:
    names = [f"{name}/{index}" for index in range(5)]
    for one in names:
        take(backend, one)
    listed = [state.name for state in backend.locks(5.0) if state.name.startswith(name)]
    assert sorted(listed) == names
