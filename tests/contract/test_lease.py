"""The lease and its token: owners are compared, the holder's TTL counts, tokens only grow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contenders import Contender, acquire, request, take, try_once
from distlock.backends.base import Backend, LeaseLost
from distlock.clock import boottime

from .engines import Engine
from .promises import assert_tokens_grow


def test_a_lease_that_is_not_renewed_runs_out(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    first = take(backend, name, ttl=engine.ttl)
    with other.enqueue(request(name, 30.0)) as ticket:
        second = acquire(ticket, engine.ttl + 5.0)
        # Not before the TTL, which the server began to count when the request was under way at the earliest.
        assert boottime() >= first.valid_from + engine.ttl
        assert boottime() < first.valid_from + engine.ttl + 2.0
    assert_tokens_grow(backend, [first.token, second.token])


def test_the_holders_ttl_counts(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    first = take(backend, name, ttl=4 * engine.ttl)
    with other.enqueue(request(name, engine.ttl)) as ticket:
        acquire(ticket, 4 * engine.ttl + 5.0)
    assert boottime() >= first.valid_from + 4 * engine.ttl


def test_a_renewal_starts_the_ttl_anew(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    take_at = take(backend, name, ttl=2 * engine.ttl)
    with other.enqueue(request(name, 30.0)) as ticket:
        while boottime() < take_at.valid_from + engine.ttl:
            assert ticket.poll() is None
        renewed = backend.renew(take_at, engine.ttl / 3)
        assert renewed.valid_from >= take_at.valid_from + engine.ttl
        acquire(ticket, 2 * engine.ttl + 5.0)
        assert boottime() >= renewed.valid_from + 2 * engine.ttl


def test_a_late_holder_changes_nothing(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    late = take(backend, name, ttl=engine.ttl)
    present = take(other, name, ttl=30.0)
    with pytest.raises(LeaseLost):
        backend.renew(late, 5.0)
    backend.release(late, 5.0)
    state = backend.inspect(name, 5.0)
    assert state.holder is not None
    assert (state.holder.owner, state.token) == (present.owner, present.token)
    assert try_once(backend, name) is None
    other.renew(present, 5.0)
    other.release(present, 5.0)


def test_an_expired_lease_is_not_renewed(engine: Engine, backend: Backend, name: str) -> None:
    """Though nobody else has come: somebody may have in between."""
    grant = take(backend, name, ttl=engine.ttl)
    while backend.inspect(name, 5.0).held:
        assert boottime() < grant.valid_from + engine.ttl + 5.0
    with pytest.raises(LeaseLost):
        backend.renew(grant, 5.0)
    backend.release(grant, 5.0)
    assert try_once(backend, name)


def test_a_released_lease_is_lost(backend: Backend, name: str) -> None:
    grant = take(backend, name)
    backend.release(grant, 5.0)
    with pytest.raises(LeaseLost):
        backend.renew(grant, 5.0)
    backend.release(grant, 5.0)


def test_a_stranger_neither_renews_nor_releases(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name)
    stranger = grant._replace(owner="stranger")
    with pytest.raises(LeaseLost):
        other.renew(stranger, 5.0)
    other.release(stranger, 5.0)
    backend.renew(grant, 5.0)
    with pytest.raises(LeaseLost):
        other.renew(grant._replace(name=f"{name} never seen"), 5.0)
    other.release(grant._replace(name=f"{name} never seen"), 5.0)


def test_tokens_only_grow(engine: Engine, url: str, open_more: Callable[[], Backend], name: str) -> None:
    tokens: list[int | None] = []
    backend = open_more()
    for _ in range(3):  # released
        grant = take(backend, name)
        tokens.append(grant.token)
        backend.release(grant, 5.0)
    tokens += [take(backend, name, ttl=engine.ttl).token for _ in range(2)]  # run out
    backend.close()  # with a lease
    backend = open_more()  # opened anew
    grant = take(backend, name, ttl=engine.ttl)
    tokens.append(grant.token)
    backend.release(grant, 5.0)
    with Contender(url, name, ttl=engine.ttl) as crashing:
        tokens.append(crashing.granted()[0] or None)
        crashing.kill()
    tokens.append(take(backend, name).token)
    assert_tokens_grow(backend, tokens)


def test_a_grant_outlives_its_connection(backend: Backend, other: Backend, name: str) -> None:
    """Another connection renews and releases it: what counts is the owner."""
    grant = take(backend, name)
    backend.close()
    assert try_once(other, name) is None
    grant = other.renew(grant, 5.0)
    assert try_once(other, name) is None
    other.release(grant, 5.0)
    assert try_once(other, name)
