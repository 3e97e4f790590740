"""Waiting: first come, first served; woken by the release; nothing stays of one who left or died."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import ExitStack, suppress

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from contenders import Contender, acquire, never, request, take, try_once
from distlock.backends.base import Backend, Grant, Ticket
from distlock.clock import boottime
from processes import wait_until

from .engines import Engine
from .histories import check_histories
from .promises import assert_in_order, assert_tokens_grow


def test_first_come_first_served(backend: Backend, other: Backend, name: str) -> None:
    held = take(backend, name)
    with ExitStack() as stack:
        tickets = [stack.enter_context(engine.enqueue(request(name, 30.0))) for engine in [other, backend] * 3]
        for ticket in tickets:
            assert ticket.poll() is None
        for index, ticket in enumerate(tickets):
            backend.release(held, 5.0)
            for later in reversed(tickets[index + 1 :]) if backend.fifo else []:
                assert later.poll() is None
            held = acquire(ticket)


def test_first_come_first_served_among_processes(url: str, backend: Backend, name: str) -> None:
    held = take(backend, name)
    with ExitStack() as stack:
        waiters = []
        for _ in range(5):
            waiters.append(stack.enter_context(Contender(url, name)))
            waiters[-1].expect("waiting")
        backend.release(held, 5.0)
        served: list[str] = []
        tokens = [held.token]
        while len(served) < len(waiters):
            holder = wait_until(lambda: backend.inspect(name, 5.0).holder)
            now = next(waiter for waiter in waiters if holder and waiter.owner == holder.owner)
            tokens.append(now.granted()[0] or None)
            served.append(now.owner)
            now.tell("release")
            now.expect("released")
        assert_in_order(backend, served, [waiter.owner for waiter in waiters])
        assert_tokens_grow(backend, tokens)


def test_a_release_wakes_the_next(backend: Backend, other: Backend, name: str) -> None:
    held = take(backend, name)
    woken: list[float] = []
    with other.enqueue(request(name, 30.0)) as ticket:
        assert ticket.poll() is None

        def wait() -> None:
            acquire(ticket)
            woken.append(boottime())

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: len(backend.inspect(name, 5.0).waiters) == 1)
        released = boottime()
        backend.release(held, 5.0)
        thread.join(10)
    assert woken[0] - released < 0.5


def test_a_release_between_poll_and_wait_is_not_missed(backend: Backend, other: Backend, name: str) -> None:
    held = take(backend, name)
    with other.enqueue(request(name, 30.0)) as ticket, never() as cancel:
        assert ticket.poll() is None
        backend.release(held, 5.0)
        start = boottime()
        ticket.wait(10.0, cancel)
        assert boottime() - start < 0.5
        assert acquire(ticket, 0.5)


def test_waiting_ends_at_its_time_out(backend: Backend, other: Backend, name: str) -> None:
    take(backend, name)
    with other.enqueue(request(name, 30.0)) as ticket, never() as cancel:
        assert ticket.poll() is None
        for timeout in (0.0, 0.05, 0.3):
            start = boottime()
            ticket.wait(timeout, cancel)
            assert boottime() - start < timeout + 0.4


def test_waiting_is_cancelled_at_once(backend: Backend, other: Backend, name: str) -> None:
    take(backend, name)
    reading, writing = os.pipe()
    with other.enqueue(request(name, 30.0)) as ticket:
        assert ticket.poll() is None
        os.write(writing, b"!")
        start = boottime()
        ticket.wait(20.0, reading)
        assert boottime() - start < 0.4
        os.close(writing)  # the end of the pipe cancels too
        os.read(reading, 1)
        ticket.wait(20.0, reading)
        assert boottime() - start < 0.8
    os.close(reading)


def test_one_who_leaves_the_queue_leaves_nothing(backend: Backend, other: Backend, name: str) -> None:
    held = take(backend, name)
    ticket = other.enqueue(request(name, 30.0))
    assert ticket.poll() is None
    ticket.close()
    ticket.close()
    with suppress(KeyError), other.enqueue(request(name, 30.0)) as ticket:
        assert ticket.poll() is None
        raise KeyError
    with other.enqueue(request(name, 30.0)):
        pass
    assert backend.inspect(name, 5.0).waiters == ()
    backend.release(held, 5.0)
    assert try_once(other, name)


def test_leaving_from_the_middle_wakes_nobody_wrongly(backend: Backend, other: Backend, name: str) -> None:
    held = take(backend, name)
    with ExitStack() as stack:
        tickets = [stack.enter_context(other.enqueue(request(name, 30.0))) for _ in range(3)]
        for ticket in tickets:
            assert ticket.poll() is None
        tickets[1].close()
        assert tickets[2].poll() is None
        tickets[0].close()
        assert tickets[2].poll() is None
        backend.release(held, 5.0)
        assert acquire(tickets[2], 1.0)


def test_closing_after_the_grant_keeps_it(backend: Backend, other: Backend, name: str) -> None:
    ticket = backend.enqueue(request(name, 30.0))
    grant = acquire(ticket)
    ticket.close()
    ticket.close()
    assert try_once(other, name) is None
    backend.release(grant, 5.0)


def test_a_killed_waiter_stands_in_nobodys_way(
    engine: Engine, url: str, backend: Backend, other: Backend, name: str
) -> None:
    held = take(backend, name)
    with ExitStack() as stack:
        dead = [stack.enter_context(Contender(url, name)) for _ in range(3)]
        for waiter in dead:
            waiter.expect("waiting")
        with other.enqueue(request(name, 30.0)) as ticket:
            assert ticket.poll() is None
            for waiter in dead:
                waiter.kill()
            backend.release(held, 5.0)
            start = boottime()
            second = acquire(ticket)
            assert boottime() - start < engine.dropped_within + 0.5
        assert backend.inspect(name, 5.0).waiters == ()
        backend.release(second, 5.0)


def test_a_single_try_gets_a_free_lock_behind_dead_waiters(
    engine: Engine, url: str, backend: Backend, name: str
) -> None:
    held = take(backend, name)
    with ExitStack() as stack:
        dead = [stack.enter_context(Contender(url, name)) for _ in range(3)]
        for waiter in dead:
            waiter.expect("waiting")
            waiter.signal(signal.SIGSTOP)  # so that none of them is woken before it dies
        backend.release(held, 5.0)
        for waiter in dead:
            waiter.kill()
        start = boottime()
        wait_until(lambda: try_once(backend, name))
        assert boottime() - start < engine.dropped_within + 0.5


class _Model(RuleBasedStateMachine):
    """What a lock with a queue does, as two variables; the engine must do the same, step for step."""

    backend: Backend
    names: list[str]

    def __init__(self) -> None:
        super().__init__()
        self.names.append(os.urandom(6).hex())
        self.name = self.names[-1]
        self.queue: list[Ticket] = []
        self.holder: Grant | None = None
        self.past: list[Grant] = []
        self.tokens: list[int | None] = []

    def _granted(self, grant: Grant | None) -> None:
        assert grant is not None
        self.tokens.append(grant.token)
        assert_tokens_grow(self.backend, self.tokens)
        self.holder = grant

    def _has_turn(self, place: int, grant: Grant | None) -> bool:
        """Whether who polls from this place must be granted a free lock, or may be and was."""
        return self.holder is None and (place == 0 or (grant is not None and not self.backend.fifo))

    @rule()
    def come(self) -> None:
        ticket = self.backend.enqueue(request(self.name, 30.0))
        grant = ticket.poll()
        if self._has_turn(len(self.queue), grant):
            self._granted(grant)
            ticket.close()
        else:
            assert grant is None
            self.queue.append(ticket)

    @precondition(lambda self: self.queue)
    @rule(place=st.integers(0, 9))
    def poll(self, place: int) -> None:
        place %= len(self.queue)
        ticket = self.queue[place]
        grant = ticket.poll()
        if self._has_turn(place, grant):
            self._granted(grant)
            self.queue.pop(place).close()
        else:
            assert grant is None

    @precondition(lambda self: self.queue)
    @rule(place=st.integers(0, 9))
    def leave(self, place: int) -> None:
        self.queue.pop(place % len(self.queue)).close()

    @precondition(lambda self: self.holder)
    @rule()
    def renew(self) -> None:
        assert self.holder is not None
        self.holder = self.backend.renew(self.holder, 5.0)

    @precondition(lambda self: self.holder)
    @rule()
    def release(self) -> None:
        assert self.holder is not None
        self.backend.release(self.holder, 5.0)
        self.past.append(self.holder)
        self.holder = None

    @precondition(lambda self: self.past)
    @rule()
    def release_again(self) -> None:
        self.backend.release(self.past[-1], 5.0)

    @rule()
    def look(self) -> None:
        state = self.backend.inspect(self.name, 5.0)
        assert state.held == (self.holder is not None)
        assert (state.holder and state.holder.owner) == (self.holder and self.holder.owner)
        assert len(state.waiters) == len(self.queue)

    def teardown(self) -> None:
        for ticket in self.queue:
            ticket.close()
        if self.holder:
            self.backend.release(self.holder, 5.0)


def test_any_sequence_of_steps_does_as_the_model(backend: Backend) -> None:
    machine = type("Model", (_Model,), {"backend": backend, "names": []})
    check_histories(machine)
