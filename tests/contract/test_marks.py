"""What a run leaves for later ones: marks under the lock, by the engine's clock, and a lock that is kept."""

from __future__ import annotations

import time

import pytest

from contenders import acquire, request, take, try_once
from distlock.backends.base import SUCCESS, Backend, LeaseLost, Mark
from distlock.clock import boottime

from .engines import Engine

DAY = 86400.0


def age(backend: Backend, name: str, slot: str) -> float | None:
    found = backend.marked(name, slot, 5.0)
    if found is None:
        return None
    assert abs(time.time() - found.at - found.age) < 60
    return found.age


def test_a_mark_is_written_with_the_release(backend: Backend, other: Backend, name: str) -> None:
    assert age(backend, name, "2026-11-30") is None
    backend.release(take(backend, name), 5.0)
    assert age(backend, name, "2026-11-30") is None
    marks = (Mark("2026-11-30", 100.0, DAY), Mark("a b\u00e4\U0001f600%:/", 7.0, DAY), Mark("x" * 200, 1e6, DAY))
    backend.release(take(backend, name), 5.0, marks)
    for mark in marks:
        found = age(other, name, mark.slot)
        assert found is not None
        assert mark.ago - 0.1 < found < mark.ago + 10.0
    assert age(other, name, "2026-12-01") is None
    assert age(other, f"{name}/1", "2026-11-30") is None
    assert try_once(other, name)


def test_a_mark_is_written_before_the_release(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name)
    backend.mark(grant, Mark("batch 7", 0.0, DAY), 5.0)
    assert age(other, name, "batch 7") is not None
    backend.renew(grant, 5.0)
    assert try_once(other, name) is None
    backend.mark(grant, Mark("batch 7", 500.0, DAY), 5.0)  # the later one counts
    found = age(other, name, "batch 7")
    assert found is not None
    assert found > 499.0
    backend.release(grant, 5.0)
    assert age(other, name, "batch 7") is not None


def test_only_the_holder_writes_marks(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    late = take(backend, name, ttl=engine.ttl)
    present = take(other, name)
    for stranger in (late, present._replace(owner="stranger"), present._replace(name=f"{name} never seen")):
        with pytest.raises(LeaseLost):
            backend.mark(stranger, Mark("x", 0.0, DAY), 5.0)
        backend.release(stranger, 5.0, (Mark("x", 0.0, DAY),), 60.0 if backend.keeps else 0.0)
        assert age(backend, stranger.name, "x") is None
    other.renew(present, 5.0)
    other.release(present, 5.0)
    with pytest.raises(LeaseLost):
        other.mark(present, Mark("x", 0.0, DAY), 5.0)


def test_a_mark_is_forgotten_in_time(backend: Backend, name: str) -> None:
    grant = take(backend, name)
    backend.mark(grant, Mark("short", 0.0, 0.5), 5.0)
    assert age(backend, name, "short") is not None
    until = boottime() + 10.0
    while age(backend, name, "short") is not None:
        assert boottime() < until
    backend.mark(grant, Mark("long", 0.0, DAY), 5.0)
    assert age(backend, name, "short") is None
    assert age(backend, name, "long") is not None
    backend.release(grant, 5.0)


def test_the_last_success_is_shown(backend: Backend, other: Backend, name: str) -> None:
    assert backend.inspect(name, 5.0).last_success is None
    backend.release(take(backend, name), 5.0, (Mark("another", 5.0, DAY),))
    assert backend.inspect(name, 5.0).last_success is None
    backend.release(take(backend, name), 5.0, (Mark(SUCCESS, 100.0, 400 * DAY),))
    held = take(other, name)
    for state in (backend.inspect(name, 5.0), next(s for s in other.locks(5.0) if s.name == name)):
        assert state.held
        assert state.last_success
        assert 99.9 < state.last_success.age < 110.0
        assert abs(time.time() - state.last_success.at - state.last_success.age) < 60
    other.release(held, 5.0)
    shown = backend.inspect(name, 5.0).last_success
    marked = backend.marked(name, SUCCESS, 5.0)
    assert shown
    assert marked
    assert shown.at == marked.at


def test_a_lock_is_kept(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    """Nobody has it, and nobody gets it, until the time is over; a waiter is in then, by itself."""
    if not backend.keeps:
        with pytest.raises(ValueError, match="keep"):
            backend.release(take(backend, name), 5.0, (), 1.0)
        return
    grant = take(backend, name)
    keep = max(engine.ttl, 2.0)
    with other.enqueue(request(name, 30.0)) as ticket:
        assert ticket.poll() is None
        before = boottime()
        backend.release(grant, 5.0, (Mark("x", 0.0, DAY),), keep)
        state = other.inspect(name, 5.0)
        assert (state.held, state.kept, state.token) == (True, True, grant.token)
        assert state.holder is not None
        assert state.holder.owner == grant.owner
        assert state.expires_in is not None
        assert 0 < state.expires_in <= keep + 1.0
        assert age(other, name, "x") is not None
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)
        backend.release(grant, 5.0)  # a second time: it is not ours any more
        assert try_once(backend, name) is None
        second = acquire(ticket, keep + 5.0)
        assert boottime() >= before + keep
        assert boottime() < before + keep + 2.5
    assert second.token is None or second.token != grant.token
    assert not other.inspect(name, 5.0).kept


def test_a_lock_outlives_the_one_who_keeps_it(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    if not backend.keeps:
        return
    before = boottime()
    keep = max(engine.ttl, 2.0)
    backend.release(take(backend, name), 5.0, (), keep)
    backend.close()
    while try_once(other, name) is None:
        assert boottime() < before + keep + 5.0
    assert boottime() >= before + keep
