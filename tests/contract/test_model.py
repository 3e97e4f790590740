"""Any sequence of steps by several owners, on each engine, beside a small model of what is promised: never two holders,
tokens strictly growing in the order of grants, no smaller token accepted by a fence after a greater one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contenders import environment, request
from distlock.backends import open_backend
from distlock.backends.base import Backend, Grant, LeaseLost, Refused
from distlock.clock import boottime

from .engines import Engine
from .histories import check_histories

OWNERS = ("a", "b", "c")
owners = st.sampled_from(OWNERS)


class Held:
    """A grant as the model knows it: until ``sure`` nobody else can have been granted the lock."""

    def __init__(self, owner: str, grant: Grant) -> None:
        self.owner = owner
        self.grant = grant
        self.revoked = False

    @property
    def sure(self) -> float:
        return self.grant.valid_from + self.grant.ttl


@pytest.fixture
def machine(engine: Engine, url: str) -> Iterator[type[RuleBasedStateMachine]]:
    opened = {owner: open_backend(url, environment()) for owner in OWNERS}

    class AnyHistory(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.name = f"model {os.urandom(6).hex()}"
            self.held: Held | None = None
            self.tokens: list[int] = []
            self.fenced = -1

        def backend(self, owner: str) -> Backend:
            return opened[owner]

        def certainly_held(self) -> bool:
            return self.held is not None and boottime() < self.held.sure

        @rule(owner=owners, short=st.booleans())
        def acquire(self, owner: str, short: bool) -> None:
            held_before = self.certainly_held()
            with self.backend(owner).enqueue(request(self.name, engine.ttl if short else 30.0)) as ticket:
                grant = ticket.poll()
            if grant is None:
                return
            # The clock after the poll: it may have waited for the end of the old lease.
            assert not (held_before and self.certainly_held()), "two holders"
            assert boottime() < grant.valid_from + grant.ttl
            if grant.token is not None:
                assert all(token < grant.token for token in self.tokens), "a token that does not grow"
                self.tokens.append(grant.token)
            self.held = Held(owner, grant)

        @precondition(lambda self: self.held is not None)
        @rule(by=owners)
        def renew(self, by: str) -> None:
            """By any client: what counts is the owner id."""
            held = self.held
            assert held is not None
            was_sure = self.certainly_held()
            try:
                held.grant = self.backend(by).renew(held.grant, 5.0)
                assert not held.revoked, "a lease that was taken away was renewed"
            except LeaseLost:
                assert held.revoked or not (was_sure and self.certainly_held()), "a lease was lost for no reason"
                if not held.revoked:
                    self.held = None

        @precondition(lambda self: self.held is not None)
        @rule(by=owners)
        def release(self, by: str) -> None:
            assert self.held is not None
            self.backend(by).release(self.held.grant, 5.0)
            self.held = None

        @precondition(lambda self: self.held is not None)
        @rule(by=owners)
        def strangers_change_nothing(self, by: str) -> None:
            assert self.held is not None
            stranger = self.held.grant._replace(owner="stranger")
            with pytest.raises(LeaseLost):
                self.backend(by).renew(stranger, 5.0)
            self.backend(by).release(stranger, 5.0)

        @precondition(lambda self: self.held is not None)
        @rule(by=owners, now=st.booleans(), right=st.booleans())
        def revoke(self, by: str, now: bool, right: bool) -> None:
            held = self.held
            assert held is not None
            was_sure = self.certainly_held()
            grant = held.grant
            token = None if grant.token is None else grant.token if right else grant.token - 1
            owner = (grant.owner if right else "stranger") if token is None else None
            done = self.backend(by).revoke(self.name, token, owner, "alice@ops1", 5.0, now=now)
            if not right:
                assert not done
            elif was_sure and self.certainly_held():
                assert done
            if done and now:
                self.held = None
            elif done:
                held.revoked = True

        @rule(by=owners, back=st.integers(0, 3))
        def fence(self, by: str, back: int) -> None:
            """With the token of this or an earlier grant."""
            if not self.tokens:
                return
            token = self.tokens[max(0, len(self.tokens) - 1 - back)]
            try:
                greatest = self.backend(by).advance_fence(self.name, 0, token, 5.0)
            except Refused:
                return
            assert greatest == max(self.fenced, token)
            self.fenced = greatest

        @precondition(lambda self: self.held is not None and self.held.grant.ttl <= engine.ttl)
        @rule()
        def time_passes(self) -> None:
            """Until the lease has certainly run out."""
            held = self.held
            assert held is not None
            backend = self.backend(held.owner)
            until = held.sure + 5.0
            while backend.inspect(self.name, 5.0).held:
                assert boottime() < until, "a lease that does not end"
            self.held = None

        @invariant()
        def what_is_shown_is_so(self) -> None:
            held = self.held
            state = self.backend("a").inspect(self.name, 5.0)
            if held is not None and self.certainly_held():
                assert state.held
                assert state.holder is not None
                assert (state.holder.owner, state.token) == (held.grant.owner, held.grant.token)
                assert state.revoked_by == ("alice@ops1" if held.revoked else None)

        def teardown(self) -> None:
            if self.held is not None:
                self.backend(self.held.owner).release(self.held.grant, 5.0)

    yield AnyHistory
    for backend in opened.values():
        backend.close()


@pytest.mark.timeout(240)
def test_any_history(machine: type[RuleBasedStateMachine]) -> None:
    check_histories(machine)
