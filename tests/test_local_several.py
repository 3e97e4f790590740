"""Local locks for several holders: crashes one by one, frozen waiters, and what an earlier distlock makes of them."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import local_fixtures
from contenders import Contender, acquire, client, never, request, take, try_once
from distlock.backends.base import Grant, LeaseLost, OtherHolders, Request
from distlock.backends.local import LocalBackend
from distlock.backends.local_boot import Ages, Host
from distlock.backends.local_crash import CrashProof
from distlock.backends.local_record import read
from distlock.clock import boottime

AT_ONCE = 0.6


url = local_fixtures.url
backend = local_fixtures.backend


def database(backend: LocalBackend) -> Path:
    (path,) = backend.directory.glob("*.lock/lock.db")
    return path


def tables(backend: LocalBackend) -> set[str]:
    with closing(sqlite3.connect(database(backend))) as sql:
        return {row[0] for row in sql.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def dead_holder(backend: LocalBackend, holders: int) -> Grant:
    """A grant of a process that is gone, its renewer too."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    renewer = LocalBackend(lambda: backend.directory, boottime)
    try:
        with renewer.enqueue(Request("n", 60.0, client(pid=pid), holders)) as ticket:
            return acquire(ticket)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        renewer.close()


def test_a_plain_lock_is_stored_as_ever(backend: LocalBackend) -> None:
    backend.release(take(backend, "n"), 5.0)
    assert tables(backend) == {"lock", "mark", "waiter"}


@pytest.mark.parametrize("killed", [0, 1, 2])
def test_a_killed_holder_frees_its_place_at_once(url: str, backend: LocalBackend, killed: int) -> None:
    with ExitStack() as stack:
        holders = [stack.enter_context(Contender(url, "n", "--holders=3", ttl=60.0)) for _ in range(3)]
        for holder in holders:
            holder.granted()
        waiter = stack.enter_context(Contender(url, "n", "--holders=3", ttl=60.0))
        waiter.expect("waiting")
        index = {one.holder.owner: one.holder_index for one in backend.inspect("n", 5.0).holdings}
        before = boottime()
        holders[killed].kill()
        assert waiter.granted()[1] - before < AT_ONCE
        after = {one.holder.owner: one.holder_index for one in backend.inspect("n", 5.0).holdings}
        assert after.pop(waiter.owner) == index.pop(holders[killed].owner)
        assert after == index
        for holder in (*holders[:killed], *holders[killed + 1 :], waiter):
            holder.tell("release")
            holder.expect("released")


def test_all_of_them_killed_leave_a_free_lock(url: str, backend: LocalBackend) -> None:
    with ExitStack() as stack:
        holders = [stack.enter_context(Contender(url, "n", "--holders=3", ttl=60.0)) for _ in range(3)]
        for holder in holders:
            holder.granted()
        for holder in holders:
            holder.kill()
    assert not backend.inspect("n", 5.0).held
    assert try_once(backend, "n") is not None


@pytest.mark.parametrize(("theirs", "ours"), [(1, 2), (2, 1), (2, 3)])
def test_who_is_dead_refuses_nobody_who_says_another_number(backend: LocalBackend, theirs: int, ours: int) -> None:
    dead_holder(backend, theirs)
    assert take(backend, "n", holders=ours).holders == ours


def test_a_living_one_beside_a_dead_one_refuses_others(backend: LocalBackend) -> None:
    dead = dead_holder(backend, 2)
    take(backend, "n", holders=2)
    with pytest.raises(OtherHolders):
        try_once(backend, "n")
    assert [one.holder_index for one in backend.inspect("n", 5.0).holdings] == [1]
    with pytest.raises(LeaseLost):
        backend.renew(dead, 5.0)


def test_a_supervisor_that_lives_keeps_its_place(backend: LocalBackend) -> None:
    renewer = LocalBackend(lambda: backend.directory, boottime)
    take(renewer, "n", holders=2)  # of this process
    renewer.close()
    take(backend, "n", holders=2)
    assert try_once(backend, "n", holders=2) is None
    assert len(backend.inspect("n", 5.0).holdings) == 2


def test_a_frozen_waiter_is_passed(url: str, backend: LocalBackend) -> None:
    held = [take(backend, "n", holders=2) for _ in range(2)]
    with Contender(url, "n", "--holders=2") as frozen, Contender(url, "n", "--holders=2") as next_one:
        for waiter in (frozen, next_one):
            waiter.expect("waiting")
        frozen.signal(signal.SIGSTOP)
        released = boottime()
        backend.release(held[0], 5.0)
        _, at = next_one.granted()
        assert 5.0 <= at - released < 7.5
        frozen.signal(signal.SIGCONT)
        backend.release(held[1], 5.0)
        frozen.granted()


def test_two_places_are_had_though_the_first_in_line_is_frozen(url: str, backend: LocalBackend) -> None:
    held = [take(backend, "n", holders=2) for _ in range(2)]
    with Contender(url, "n", "--holders=2") as frozen:
        frozen.expect("waiting")
        frozen.signal(signal.SIGSTOP)
        for grant in held:
            backend.release(grant, 5.0)
        assert try_once(backend, "n", holders=2) is not None
        assert try_once(backend, "n", holders=2) is None
        frozen.signal(signal.SIGCONT)
        frozen.granted()


def test_renewals_of_others_grant_nothing(backend: LocalBackend) -> None:
    grants = [take(backend, "n", holders=2) for _ in range(2)]
    with backend.enqueue(request("n", 30.0, holders=2)) as ticket, never() as cancel:
        for _ in range(10):
            assert ticket.poll() is None
            backend.renew(grants[0], 5.0)
            ticket.wait(0.05, cancel)


def test_waiting_leaves_no_descriptor_behind(backend: LocalBackend) -> None:
    grants = [take(backend, "n", holders=3) for _ in range(3)]

    def opened() -> int:
        with never() as cancel, backend.enqueue(request("n", 30.0, holders=3)) as ticket:
            assert ticket.poll() is None
            ticket.wait(0.05, cancel)
        return len(os.listdir("/proc/self/fd"))

    before = opened()  # SQLite closes a file once the process has no lock on it, and uses it again until then
    assert [opened() for _ in range(3)] == [before] * 3
    for grant in grants:
        backend.release(grant, 5.0)


def test_an_earlier_distlock_sees_it_held_until_the_last_lease_ends(backend: LocalBackend) -> None:
    """By the lock's row alone, which is all that it knows: never free, and never of a process that crashed."""
    first = take(backend, "n", ttl=60.0, holders=2)
    second = take(backend, "n", ttl=3.0, holders=2)
    for step in (
        lambda: backend.renew(second, 5.0),
        lambda: backend.renew(first, 5.0),
        lambda: backend.release(second, 5.0),
    ):
        step()
        with closing(sqlite3.connect(database(backend))) as sql:
            row = read(sql)
        age = Ages(Host.read(), boottime).age(row, boottime())
        assert row.free_for(age) is None
        assert row.ttl - age > 55.0
        assert not CrashProof(Host.read()).given(row)
    backend.release(first, 5.0)
    with closing(sqlite3.connect(database(backend))) as sql:
        assert read(sql).owner == ""


def test_a_lock_that_an_earlier_distlock_took_is_lost_to_all(backend: LocalBackend) -> None:
    """It writes the lock's row alone."""
    grants = [take(backend, "n", holders=2) for _ in range(2)]
    with closing(sqlite3.connect(database(backend), isolation_level=None)) as sql:
        sql.execute("UPDATE lock SET owner = 'earlier', changes = changes + 1, token = token + 1")
    for grant in grants:
        with pytest.raises(LeaseLost):
            backend.renew(grant, 5.0)
        backend.release(grant, 5.0)
    state = backend.inspect("n", 5.0)
    assert state.holder is not None
    assert (state.holder.owner, state.max_holders) == ("earlier", 1)
