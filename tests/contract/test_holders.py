"""Several holders at once: never more than were asked for, each with an index, first come first served."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from contenders import Contender, acquire, never, request, take, try_once
from distlock.backends.base import Backend, ConfigurationError, Grant, LeaseLost, OtherHolders, Revoked, Ticket
from distlock.clock import boottime
from processes import wait_until

from .engines import Engine
from .histories import check_histories
from .promises import assert_in_order, assert_tokens_grow


def fill(backend: Backend, name: str, holders: int, ttl: float = 30.0) -> list[Grant]:
    return [take(backend, name, ttl, holders=holders) for _ in range(holders)]


def test_as_many_as_were_asked_for(backend: Backend, other: Backend, name: str) -> None:
    grants = fill(backend, name, 3)
    assert sorted(grant.holder_index for grant in grants) == [0, 1, 2]
    assert {grant.holders for grant in grants} == {3}
    assert try_once(other, name, holders=3) is None
    other.release(grants[1], 5.0)
    again = try_once(other, name, holders=3)
    assert again is not None
    assert again.holder_index == grants[1].holder_index
    assert try_once(other, name, holders=3) is None
    assert_tokens_grow(backend, [*[grant.token for grant in grants], again.token])


@pytest.mark.parametrize(("theirs", "ours"), [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_another_number_is_refused_while_it_is_held(
    backend: Backend, other: Backend, name: str, theirs: int, ours: int
) -> None:
    grants = [take(backend, name, holders=theirs) for _ in range(min(theirs, 2))]
    for grant in grants:
        with pytest.raises(OtherHolders, match="--max-holders") as caught:
            try_once(other, name, holders=ours)
        assert isinstance(caught.value, ConfigurationError)
        backend.release(grant, 5.0)
    grant = take(other, name, holders=ours)
    assert grant.holders == ours
    assert_tokens_grow(backend, [*[earlier.token for earlier in grants], grant.token])


def test_one_that_holds_alone_but_for_its_number_is_still_many(backend: Backend, other: Backend, name: str) -> None:
    """Whatever index is left: 1 of 3 is no plain lock."""
    grants = fill(backend, name, 3)
    for grant in sorted(grants, key=lambda grant: grant.holder_index)[:2]:
        backend.release(grant, 5.0)
    with pytest.raises(OtherHolders):
        try_once(other, name)
    assert sorted((take(other, name, holders=3).holder_index, take(other, name, holders=3).holder_index)) == [0, 1]


def test_first_come_first_served(backend: Backend, other: Backend, name: str) -> None:
    grants = fill(backend, name, 3)
    with ExitStack() as stack:
        tickets = [stack.enter_context(one.enqueue(request(name, 30.0, holders=3))) for one in [other, backend] * 3]
        for ticket in tickets:
            assert ticket.poll() is None
        for at, ticket in enumerate(tickets):
            freed = grants.pop(at % 3)
            backend.release(freed, 5.0)
            for later in reversed(tickets[at + 1 :]) if backend.fifo else []:
                assert later.poll() is None
            grants.append(acquire(ticket))
            assert grants[-1].holder_index == freed.holder_index


def test_first_come_first_served_among_processes(url: str, backend: Backend, name: str) -> None:
    held = fill(backend, name, 2)
    with ExitStack() as stack:
        waiters = []
        for _ in range(4):
            waiters.append(stack.enter_context(Contender(url, name, "--holders=2")))
            waiters[-1].expect("waiting")
        for grant in held:
            backend.release(grant, 5.0)
        served: list[str] = []
        while len(served) < len(waiters):
            there = wait_until(
                lambda: [one for one in backend.inspect(name, 5.0).holdings if one.holder.owner not in served]
            )
            by_token = sorted(there, key=lambda one: (one.token or 0, one.holder.since))
            waiter = next(waiter for waiter in waiters if waiter.owner == by_token[0].holder.owner)
            waiter.granted()
            served.append(waiter.owner)
            waiter.tell("release")
            waiter.expect("released")
        assert_in_order(backend, served, [waiter.owner for waiter in waiters])


@pytest.mark.parametrize("index", [0, 1, 2])
def test_whichever_frees_first(backend: Backend, other: Backend, name: str, index: int) -> None:
    grants = fill(backend, name, 3)
    with other.enqueue(request(name, 30.0, holders=3)) as ticket, never() as cancel:
        assert ticket.poll() is None
        freed = next(grant for grant in grants if grant.holder_index == index)
        backend.release(freed, 5.0)
        start = boottime()
        ticket.wait(10.0, cancel)
        assert boottime() - start < 0.5
        assert acquire(ticket, 0.5).holder_index == index


@pytest.mark.parametrize("index", [0, 1])
def test_one_that_is_not_renewed_runs_out(
    engine: Engine, backend: Backend, other: Backend, name: str, index: int
) -> None:
    first = take(backend, name, ttl=engine.ttl if index == 0 else 30.0, holders=2)
    second = take(backend, name, ttl=engine.ttl if index == 1 else 30.0, holders=2)
    short, long = (first, second) if index == 0 else (second, first)
    with other.enqueue(request(name, 30.0, holders=2)) as ticket:
        third = acquire(ticket, engine.ttl + 5.0)
    assert third.holder_index == short.holder_index
    assert boottime() >= short.valid_from + engine.ttl
    assert boottime() < short.valid_from + engine.ttl + 2.0
    with pytest.raises(LeaseLost):
        backend.renew(short, 5.0)
    backend.release(short, 5.0)
    renewed = backend.renew(long, 5.0)
    assert (renewed.holder_index, renewed.holders, renewed.token) == (long.holder_index, 2, long.token)
    other.renew(third, 5.0)


def test_all_run_out_and_the_lock_is_free(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    fill(backend, name, 2, ttl=engine.ttl)
    wait_until(lambda: not other.inspect(name, 5.0).held)
    assert take(other, name).holders == 1


def test_the_longest_lease_keeps_others_out(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    """A short lease beside a long one: that one's end is not the end of all."""
    take(backend, name, ttl=30.0, holders=2)
    take(backend, name, ttl=engine.ttl, holders=2)
    wait_until(lambda: len(other.inspect(name, 5.0).holdings) == 1)
    with pytest.raises(OtherHolders):
        try_once(other, name)


def test_strangers_change_nothing(backend: Backend, other: Backend, name: str) -> None:
    grants = fill(backend, name, 2)
    for grant in grants:
        stranger = grant._replace(owner="stranger")
        with pytest.raises(LeaseLost):
            other.renew(stranger, 5.0)
        other.release(stranger, 5.0)
    assert try_once(other, name, holders=2) is None
    for grant in grants:
        backend.renew(grant, 5.0)


def test_a_second_release_frees_nobody_else(backend: Backend, other: Backend, name: str) -> None:
    gone, stays = fill(backend, name, 2)
    backend.release(gone, 5.0)
    next_one = take(other, name, holders=2)
    backend.release(gone, 5.0)
    assert try_once(other, name, holders=2) is None
    other.renew(next_one, 5.0)
    backend.renew(stays, 5.0)


def test_operators_see_each(backend: Backend, other: Backend, name: str) -> None:
    grants = sorted(fill(backend, name, 3), key=lambda grant: grant.holder_index)
    backend.release(grants[1], 5.0)
    del grants[1]
    for state in (other.inspect(name, 5.0), *(state for state in other.locks(5.0) if state.name == name)):
        assert state.held
        assert state.max_holders == 3
        assert [(one.holder_index, one.token, one.holder.owner) for one in state.holdings] == [
            (grant.holder_index, grant.token, grant.owner) for grant in grants
        ]
        for one in state.holdings:
            assert one.ttl == 30.0
            assert 20.0 < one.expires_in <= 30.0
        first = state.holdings[0]
        assert (state.token, state.holder, state.ttl) == (first.token, first.holder, first.ttl)
        assert not state.waiters
    assert len([state for state in other.locks(5.0) if state.name.startswith(name)]) == 1
    for grant in grants:
        backend.release(grant, 5.0)
    state = other.inspect(name, 5.0)
    assert (state.held, state.holdings, state.max_holders) == (False, (), 1)


def test_waiters_are_seen_in_order(backend: Backend, other: Backend, name: str) -> None:
    fill(backend, name, 2)
    with ExitStack() as stack:
        waiting = [request(name, 30.0, holders=2) for _ in range(3)]
        for one in waiting:
            assert stack.enter_context(other.enqueue(one)).poll() is None
        assert [waiter.owner for waiter in backend.inspect(name, 5.0).waiters] == [one.client.owner for one in waiting]
    assert not backend.inspect(name, 5.0).waiters


def test_one_of_them_is_taken_away(backend: Backend, other: Backend, name: str) -> None:
    grants = fill(backend, name, 2)
    gone, stays = grants[1], grants[0]
    owner = gone.owner if gone.token is None else None
    wrong = None if gone.token is None else gone.token + 7
    assert not other.revoke(name, wrong, owner and "nobody", "al@ops", 5.0, now=False)
    assert other.revoke(name, gone.token, owner, "al@ops", 5.0, now=False)
    with pytest.raises(Revoked):
        backend.renew(gone, 5.0)
    assert {one.holder.owner: one.revoked_by for one in other.inspect(name, 5.0).holdings} == {
        stays.owner: None,
        gone.owner: "al@ops",
    }
    assert try_once(other, name, holders=2) is None
    backend.renew(stays, 5.0)
    backend.release(gone, 5.0)
    again = take(other, name, holders=2)
    assert again.holder_index == gone.holder_index
    owner = stays.owner if stays.token is None else None
    assert other.revoke(name, stays.token, owner, "al@ops", 5.0, now=True)
    assert take(other, name, holders=2).holder_index == stays.holder_index
    with pytest.raises(LeaseLost):
        backend.renew(stays, 5.0)
    other.renew(again, 5.0)


def test_one_of_them_is_kept(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    gone, stays = fill(backend, name, 2)
    if not backend.keeps:
        with pytest.raises(ValueError, match=r"."):
            backend.release(gone, 5.0, (), engine.ttl)
        return
    backend.release(gone, 5.0, (), engine.ttl)
    released = boottime()
    assert {one.holder_index: one.kept for one in other.inspect(name, 5.0).holdings} == {
        gone.holder_index: True,
        stays.holder_index: False,
    }
    with other.enqueue(request(name, 30.0, holders=2)) as ticket:
        assert ticket.poll() is None
        assert acquire(ticket, engine.ttl + 5.0).holder_index == gone.holder_index
        assert boottime() >= released + engine.ttl - 0.05


def test_killed_waiters_stand_in_nobodys_way(
    engine: Engine, url: str, backend: Backend, other: Backend, name: str
) -> None:
    grants = fill(backend, name, 2)
    with ExitStack() as stack:
        dead = [stack.enter_context(Contender(url, name, "--holders=2")) for _ in range(3)]
        for waiter in dead:
            waiter.expect("waiting")
        with other.enqueue(request(name, 30.0, holders=2)) as ticket:
            assert ticket.poll() is None
            for waiter in dead:
                waiter.kill()
            backend.release(grants[1], 5.0)
            start = boottime()
            acquire(ticket)
            assert boottime() - start < engine.dropped_within + 0.5
        assert backend.inspect(name, 5.0).waiters == ()


def test_a_thousand_may(backend: Backend, other: Backend, name: str) -> None:
    grants = [take(backend, name, holders=1000) for _ in range(12)]
    assert sorted(grant.holder_index for grant in grants) == list(range(12))
    assert other.inspect(name, 5.0).max_holders == 1000
    for grant in grants:
        backend.release(grant, 5.0)


class _Model(RuleBasedStateMachine):
    """A lock for three with a queue; the engine must do the same, step for step."""

    N = 3
    backend: Backend

    def __init__(self) -> None:
        super().__init__()
        self.name = f"model {os.urandom(6).hex()}"
        self.queue: list[Ticket] = []
        self.held: dict[int, Grant] = {}
        self.tokens: list[int | None] = []

    def _granted(self, grant: Grant | None) -> None:
        assert grant is not None
        assert 0 <= grant.holder_index < self.N
        assert grant.holder_index not in self.held
        self.tokens.append(grant.token)
        assert_tokens_grow(self.backend, self.tokens)
        self.held[grant.holder_index] = grant

    def _has_turn(self, place: int, grant: Grant | None) -> bool:
        free = self.N - len(self.held)
        return free > place or (free > 0 and grant is not None and not self.backend.fifo)

    @rule()
    def come(self) -> None:
        ticket = self.backend.enqueue(request(self.name, 30.0, holders=self.N))
        grant = ticket.poll()
        if self._has_turn(len(self.queue), grant):
            self._granted(grant)
            ticket.close()
        else:
            assert grant is None
            self.queue.append(ticket)

    @precondition(lambda self: self.queue)
    @rule()
    def poll_first(self) -> None:
        grant = self.queue[0].poll()
        if self._has_turn(0, grant):
            self._granted(grant)
            self.queue.pop(0).close()
        else:
            assert grant is None

    @precondition(lambda self: self.queue)
    @rule(place=st.integers(0, 9))
    def leave(self, place: int) -> None:
        self.queue.pop(place % len(self.queue)).close()

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, 9))
    def renew(self, index: int) -> None:
        held = sorted(self.held)[index % len(self.held)]
        self.held[held] = self.backend.renew(self.held[held], 5.0)
        assert self.held[held].holder_index == held

    @precondition(lambda self: self.held)
    @rule(index=st.integers(0, 9))
    def release(self, index: int) -> None:
        self.backend.release(self.held.pop(sorted(self.held)[index % len(self.held)]), 5.0)

    @precondition(lambda self: self.held)
    @rule(ours=st.sampled_from([1, 2, 4]))
    def another_number(self, ours: int) -> None:
        with pytest.raises(OtherHolders):
            try_once(self.backend, self.name, holders=ours)

    @rule()
    def look(self) -> None:
        state = self.backend.inspect(self.name, 5.0)
        assert state.held == bool(self.held)
        assert [(one.holder_index, one.holder.owner) for one in state.holdings] == [
            (index, self.held[index].owner) for index in sorted(self.held)
        ]
        assert len(state.waiters) == len(self.queue)

    def teardown(self) -> None:
        for ticket in self.queue:
            ticket.close()
        for grant in self.held.values():
            self.backend.release(grant, 5.0)


def test_any_sequence_of_steps_does_as_the_model(backend: Backend) -> None:
    machine = type("Model", (_Model,), {"backend": backend})
    check_histories(machine)
