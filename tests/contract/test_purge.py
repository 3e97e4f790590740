"""Forgetting locks that are no longer used, and never what their tokens had reached."""

from __future__ import annotations

import pytest

from contenders import request, take
from distlock.backends.base import SUCCESS, SUCCESS_KEPT, Backend, Mark

from .promises import assert_tokens_grow
from .test_fence import keeps_fences


def purge(backend: Backend, prefix: str, unused_for: float = 0.0, *, fences: bool = False) -> list[str]:
    return sorted(backend.purge(lambda found: found.startswith(prefix), unused_for, 5.0, fences=fences))


def known(backend: Backend, prefix: str) -> list[str]:
    return sorted(state.name for state in backend.locks(5.0) if state.name.startswith(prefix))


def test_free_locks_are_forgotten_and_tokens_still_grow(backend: Backend, other: Backend, name: str) -> None:
    names = [f"{name}/{index}" for index in range(3)]
    tokens = {}
    for one in names:
        grant = take(backend, one)
        tokens[one] = grant.token
        backend.release(grant, 5.0)
    recorded = known(other, name)
    assert purge(other, f"{name}/1") == [one for one in recorded if one == names[1]]
    assert purge(other, name) == [one for one in recorded if one != names[1]]
    assert known(other, name) == []
    assert purge(other, name) == []
    for one in names:
        for engine in (backend, other):
            grant = take(engine, one)
            assert_tokens_grow(backend, [tokens[one], grant.token])
            tokens[one] = grant.token
            engine.release(grant, 5.0)


def test_what_is_held_or_waited_for_stays(backend: Backend, other: Backend, name: str) -> None:
    held = take(backend, f"{name}/held")
    many = [take(backend, f"{name}/many", holders=3) for _ in range(2)]
    awaited = take(backend, f"{name}/awaited")
    with other.enqueue(request(f"{name}/awaited", 30.0)) as ticket:
        assert ticket.poll() is None
        backend.release(many[0], 5.0)
        assert purge(other, name) == []
        backend.release(awaited, 5.0)
        if backend.fifo:
            assert purge(other, name) == []
    backend.renew(held, 5.0)
    backend.renew(many[1], 5.0)


def test_what_is_to_be_remembered_stays(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name)
    backend.release(grant, 5.0, (Mark(SUCCESS, 1.0, SUCCESS_KEPT),))
    assert purge(other, name) == []
    assert other.marked(name, SUCCESS, 5.0) is not None


def test_what_was_used_lately_stays(backend: Backend, other: Backend, name: str) -> None:
    backend.release(take(backend, name), 5.0)
    recorded = known(other, name)
    assert purge(other, name, 3600.0) == []
    assert known(other, name) == recorded


def test_a_lock_for_many_is_forgotten_as_any(backend: Backend, other: Backend, name: str) -> None:
    grants = [take(backend, name, holders=3) for _ in range(3)]
    for grant in grants:
        backend.release(grant, 5.0)
    recorded = known(other, name)
    assert purge(other, name) == recorded
    again = take(other, name)
    assert_tokens_grow(backend, [*[grant.token for grant in grants], again.token])


def test_fence_registers_stay_unless_they_are_meant(backend: Backend, other: Backend, name: str) -> None:
    if not keeps_fences(backend, name):
        assert purge(other, name, fences=True) == []
        return
    assert backend.advance_fence(name, 0, 9, 5.0) == 9
    assert backend.advance_fence(name, 2, 7, 5.0) == 7
    assert purge(other, name) == []
    assert backend.advance_fence(name, 0, 1, 5.0) == 9
    assert purge(other, name, 3600.0, fences=True) == []
    assert purge(other, name, fences=True) == [name, f"{name} trial"]
    assert backend.advance_fence(name, 0, 1, 5.0) == 1
    assert backend.advance_fence(name, 2, 2, 5.0) == 2


@pytest.mark.parametrize("fences", [False, True])
def test_others_are_not_touched(backend: Backend, other: Backend, name: str, fences: bool) -> None:
    grant = take(backend, name)
    backend.release(grant, 5.0)
    before = known(other, name)
    assert purge(other, f"{name} and more", fences=fences) == []
    assert known(other, name) == before
