"""Purging locks and fence registers at a ZooKeeper: in bounded steps, beside others that use them."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient

import zookeeper_fixtures
from contenders import take, try_once
from distlock.backends.base import SUCCESS, Backend, Mark, Unavailable
from processes import wait_until
from zookeeper_fixtures import folder

LATER = b'{"version":2}'


server = zookeeper_fixtures.server
zk = zookeeper_fixtures.zk
backend = zookeeper_fixtures.backend
other = zookeeper_fixtures.other


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def purged(backend: Backend, name: str, *, fences: bool = False, unused_for: float = 0.0) -> list[str]:
    return list(backend.purge(lambda found: found.startswith(name), unused_for, 5.0, fences=fences))


def test_ten_thousand(backend: Backend, zk: KazooClient, name: str) -> None:
    """None of them in one answer with the others, but for their names."""
    zk.ensure_path("/distlock/lock")
    for start in range(0, 10000, 500):
        transaction = zk.transaction()
        for number in range(start, start + 500):
            transaction.create(folder(f"{name}{number}"), b'{"version":1,"token":7}')
        transaction.commit()
    assert len(purged(backend, name)) == 10000
    assert not [node for node in zk.get_children("/distlock/lock") if node.startswith(name)]


def test_who_enters_meanwhile_keeps_its_place(backend: Backend, other: Backend, name: str) -> None:
    """One purges all the time, and the other takes and gives back, and never loses what it has."""
    stop, forgotten = threading.Event(), []

    def purge() -> None:
        while not stop.is_set():
            forgotten.extend(purged(other, name))

    thread = threading.Thread(target=purge)
    thread.start()
    tokens = []
    try:
        for turn in range(120):
            grant = take(backend, name, holders=1 + turn % 2)
            tokens.append(grant.token or 0)
            backend.renew(grant, 5.0)
            backend.release(grant, 5.0)
    finally:
        stop.set()
        thread.join()
    assert tokens == sorted(set(tokens))
    assert forgotten


@pytest.mark.parametrize("holders", [1, 2])
def test_how_late_a_lock_was_used(
    backend: Backend, other: Backend, zk: KazooClient, name: str, holders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release stamps nothing, so a holder does now and then; and the record's token stays the greatest."""
    grants = [take(backend, name, holders=holders) for _ in range(holders)]
    wait_until(lambda: zk.get(folder(name))[0])
    before = zk.get(folder(name))
    grants[0] = backend.renew(grants[0], 5.0)
    assert zk.exists(folder(name)).version == before[1].version
    monkeypatch.setattr("distlock.backends.zookeeper_place.RECORDED", 0.0)
    backend.renew(grants[0], 5.0)
    wait_until(lambda: zk.exists(folder(name)).version > before[1].version)
    assert zk.get(folder(name))[0] == before[0]
    for grant in grants:
        backend.release(grant, 5.0)
    assert purged(other, name, unused_for=1.0) == []
    monkeypatch.setattr("distlock.backends.zookeeper_purge._UNSTAMPED", 0.0)
    assert purged(other, name, unused_for=1.0) == []
    wait_until(lambda: purged(other, name, unused_for=1.0) == [name], 3.0)


def test_with_the_marks_that_need_not_be_remembered(
    backend: Backend, other: Backend, zk: KazooClient, name: str
) -> None:
    grant = take(backend, name)
    backend.release(grant, 5.0, (Mark("old", 0.0, 0.0),))
    for number in range(250):
        zk.create(f"{folder(name)}/marks/{number}", b'{"version":1,"ago":0.0,"keep":0.0}')
    zk.create(f"{folder(name)}/marks/kept", b'{"version":1,"ago":0.0,"keep":600.0}')
    assert purged(other, name) == []
    assert other.marked(name, "kept", 5.0)
    zk.delete(f"{folder(name)}/marks/kept")
    assert purged(other, name) == [name]
    assert zk.exists(folder(name)) is None
    backend.release(take(backend, name), 5.0, (Mark(SUCCESS, 0.0, 60.0),))


def test_what_is_not_known_stays_and_is_told_behind_the_others(backend: Backend, zk: KazooClient, name: str) -> None:
    for part in "abcd":
        backend.release(take(backend, f"{name}{part}"), 5.0, (Mark("x", 0.0, 0.0),))
    zk.set(folder(f"{name}a"), LATER)
    zk.set(f"{folder(f'{name}b')}/marks/x", LATER)
    zk.create(f"{folder(f'{name}c')}/leases")
    zk.create(folder(f"{name}foreign"))
    found = backend.purge(lambda one: one.startswith(name), 0.0, 5.0)
    assert next(found) == f"{name}d"
    with pytest.raises(Unavailable, match="in a layout that this program does not know"):
        next(found)
    left = {node for node in zk.get_children("/distlock/lock") if node.startswith(name)}
    assert left == {f"{name}{part}" for part in ("a", "b", "c", "foreign")}
    for part in "ab":
        zk.delete(folder(f"{name}{part}"), recursive=True)


def test_foreign_holders_and_their_folders_stay(backend: Backend, zk: KazooClient, name: str) -> None:
    backend.release(take(backend, name), 5.0)
    lock = zk.Lock(folder(name))
    lock.acquire()
    assert purged(backend, name) == []
    lock.release()
    assert purged(backend, name) == [name]
    assert try_once(backend, name)


def test_registers_of_an_unknown_layout_stay(backend: Backend, zk: KazooClient, name: str) -> None:
    for part in "ab":
        backend.advance_fence(f"{name}{part}", 0, 5, 5.0)
    zk.set(f"/distlock/fence/{name}a/0", LATER)
    found = backend.purge(lambda one: one.startswith(name), 0.0, 5.0, fences=True)
    assert next(found) == f"{name}b"
    with pytest.raises(Unavailable, match="in a layout"):
        next(found)
    assert zk.exists(f"/distlock/fence/{name}a/0")
