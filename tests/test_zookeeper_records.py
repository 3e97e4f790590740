"""Marks, leases that were taken away, and fence registers, as the ZooKeeper engine stores them."""

from __future__ import annotations

import json
import select
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import quote

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import zookeeper_fixtures
from contenders import never, request, take, try_once
from distlock.backends.base import SUCCESS, Backend, Grant, LeaseLost, Mark, Refused, Revoked, Unavailable, Unmarked
from distlock.clock import boottime
from processes import wait_until
from zookeeper_fixtures import data, folder, queue

DAY = 86400.0
BY = "alice@ops1"
LATER = b'{"version":2}'


server = zookeeper_fixtures.server
zk = zookeeper_fixtures.zk
backend = zookeeper_fixtures.backend
other = zookeeper_fixtures.other
name = zookeeper_fixtures.name


def marks(zk: KazooClient, name: str) -> set[str]:
    return set(zk.get_children(f"{folder(name)}/marks"))


# --- marks ------------------------------------------------------------------------------------------------------------


def test_a_mark_is_a_node(backend: Backend, zk: KazooClient, name: str) -> None:
    backend.release(take(backend, name), 5.0, (Mark(SUCCESS, 7.0, DAY), Mark("once:é/1", 0.0, 60.0)))
    assert marks(zk, name) == {SUCCESS, "once%3A%C3%A9%2F1"}
    assert data(zk, f"{folder(name)}/marks/success") == {"version": 1, "ago": 7.0, "keep": DAY}
    assert queue(zk, name) == [f"{folder(name)}/marks"], "and the holder's node is gone"


@pytest.mark.parametrize("slot", ["x__lock__0000000000", "..", "/", "~"])
def test_no_slot_is_in_anybodys_way(backend: Backend, other: Backend, name: str, slot: str) -> None:
    """Nor a path that ZooKeeper refuses, or a contender."""
    backend.release(take(backend, name), 5.0, (Mark(slot, 0.0, DAY),))
    assert backend.marked(name, slot, 5.0)
    assert not backend.inspect(name, 5.0).held
    assert try_once(other, name)


def test_what_is_forgotten_is_removed_with_the_next_marks(backend: Backend, zk: KazooClient, name: str) -> None:
    """A bounded number at a time, so that a release does not take the longer the more there are; and not what is
    somebody else's, or another version's."""
    grant = take(backend, name)
    backend.mark(grant, Mark("kept", 0.0, DAY), 5.0)
    within = f"{folder(name)}/marks"
    for step in range(120):
        zk.create(f"{within}/{step}", b'{"version":1,"ago":0.0,"keep":0.0}')
    zk.create(f"{within}/later", LATER)
    zk.create(f"{within}/foreign", b"somebody")
    time.sleep(0.01)
    backend.renew(grant, 5.0)
    backend.mark(grant, Mark("a", 0.0, DAY), 5.0)
    assert 120 - 100 <= len(marks(zk, name)) - 4 <= 120 - 90
    backend.release(grant, 5.0, (Mark("b", 0.0, DAY),))
    assert marks(zk, name) == {"kept", "a", "b", "later", "foreign"}


def test_a_mark_of_an_unknown_layout_is_never_none(backend: Backend, zk: KazooClient, name: str) -> None:
    """Or what has been done would be done again."""
    backend.release(take(backend, name), 5.0, (Mark("x", 0.0, DAY),))
    zk.set(f"{folder(name)}/marks/x", LATER)
    with pytest.raises(Unavailable, match="in a layout that this program does not know") as error:
        backend.marked(name, "x", 5.0)
    assert error.value.permanent


def test_a_lock_is_given_back_though_a_mark_cannot_be_written(backend: Backend, zk: KazooClient, name: str) -> None:
    zk.ensure_path(folder(name))
    zk.create(f"{folder(name)}/marks", acl=[make_acl("world", "anyone", read=True)])
    grant = take(backend, name)
    with pytest.raises(Refused):
        backend.mark(grant, Mark("x", 0.0, DAY), 5.0)
    backend.renew(grant, 5.0)
    with pytest.raises(Unmarked, match="does not allow it"):
        backend.release(grant, 5.0, (Mark(SUCCESS, 0.0, DAY), Mark("x", 0.0, DAY)))
    backend.release(take(backend, name), 5.0, (Mark(SUCCESS, 0.0, DAY),))
    assert try_once(backend, name)


def test_marks_are_not_for_who_lost_the_lock_meanwhile(backend: Backend, zk: KazooClient, name: str) -> None:
    """It does not know yet."""
    for act in ("mark", "release"):
        grant = take(backend, name)
        zk.delete(queue(zk, name)[0])
        if act == "mark":
            with pytest.raises(LeaseLost):
                backend.mark(grant, Mark("x", 0.0, DAY), 5.0)
        else:
            backend.release(grant, 5.0, (Mark("x", 0.0, DAY),))
        assert backend.marked(name, "x", 5.0) is None


def test_a_mark_of_one_process_over_the_session_of_another(backend: Backend, other: Backend, name: str) -> None:
    """As a lease is handed on."""
    grant = take(backend, name)
    other.mark(grant, Mark("x", 0.0, DAY), 5.0)
    assert backend.marked(name, "x", 5.0)
    other.release(other.renew(grant, 5.0), 5.0)
    assert try_once(backend, name)


@pytest.mark.parametrize("given", [(), (Mark("x", 0.0, DAY),)])
def test_released_by_another_process_while_the_holder_renews(
    backend: Backend, other: Backend, name: str, given: tuple[Mark, ...]
) -> None:
    """Its session is left alone, or the two would take it from each other; a server that is asked to take up a session
    which is just being ended may not answer at all."""
    with ThreadPoolExecutor(1) as pool:
        for _ in range(10):
            grant = take(backend, name)
            renewing = pool.submit(renew_for_long, backend, grant)
            other.release(grant, 5.0, given)
            released = boottime()
            with pytest.raises(LeaseLost):
                renewing.result()
            assert boottime() - released < 1.0
            later = try_once(other, name)
            assert later
            other.release(later, 5.0)


# --- a lease that is taken away ---------------------------------------------------------------------------------------


def alarm_of(backend: Backend, grant: Grant) -> int:
    """Once what was told without waiting for an answer has been answered."""
    found: list[int | None] = [None]

    def there() -> bool:
        found[0] = backend.alarm(grant)
        return found[0] is not None

    wait_until(there)
    assert found[0] is not None
    return found[0]


@pytest.mark.parametrize("how", ["granted", "renewed", "marked", "waited"])
def test_the_holder_is_told_at_once(backend: Backend, other: Backend, name: str, how: str) -> None:
    if how == "waited":
        held = take(other, name)
        with backend.enqueue(request(name, 20.0)) as ticket, never() as cancel:
            assert ticket.poll() is None
            other.release(held, 5.0)
            until = boottime() + 5
            while (grant := ticket.poll()) is None:
                assert boottime() < until
                ticket.wait(0.5, cancel)
    else:
        grant = take(backend, name)
    if how == "renewed":
        grant = backend.renew(grant, 5.0)
    if how == "marked":
        backend.mark(grant, Mark("x", 0.0, DAY), 5.0)
    alarm = alarm_of(backend, grant)
    assert not select.select([alarm], [], [], 0.2)[0]
    assert other.revoke(name, grant.token, None, BY, 5.0, now=False)
    assert select.select([alarm], [], [], 1.0)[0]
    with pytest.raises(Revoked, match=BY):
        backend.renew(grant, 5.0)


def test_renewals_at_the_same_time_do_not_undo_it(backend: Backend, other: Backend, name: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        for _ in range(10):
            grant = take(backend, name)
            revoked = pool.submit(other.revoke, name, grant.token, None, BY, 5.0, now=False)
            with pytest.raises(Revoked):
                renew_for_long(backend, grant)
            assert revoked.result()
            backend.release(grant, 5.0)


def renew_for_long(backend: Backend, grant: Grant) -> None:
    until = boottime() + 5
    while boottime() < until:
        with suppress(Unavailable):  # somebody else has taken the session up: it is tried again
            backend.renew(grant, 5.0)


def test_a_renewal_whose_answer_was_lost_is_no_revocation(backend: Backend, zk: KazooClient, name: str) -> None:
    """The node has been written, and we do not know."""
    grant = take(backend, name)
    (path,) = queue(zk, name)
    for _ in range(2):
        zk.set(path, zk.get(path)[0])
        grant = backend.renew(grant, 5.0)
    assert data(zk, path)["owner"] == grant.owner


def test_another_process_that_takes_the_lease_over_is_told(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name)
    assert backend.revoke(name, grant.token, None, BY, 5.0, now=False)
    with pytest.raises(Revoked, match=BY):
        other.renew(grant, 5.0)
    other.release(grant, 5.0)
    assert try_once(backend, name)


def test_a_revocation_shows_as_no_renewal(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name, ttl=20.0)
    wait_until(lambda: (other.inspect(name, 5.0).expires_in or 0) < 19.0)
    before = other.inspect(name, 5.0).expires_in or 0
    for _ in range(2):
        assert other.revoke(name, grant.token, None, BY, 5.0, now=False)
        state = other.inspect(name, 5.0)
        assert state.revoked_by == BY
        assert (state.expires_in or 0) <= before


def test_waiters_and_foreign_holders_are_not_meant(
    backend: Backend, other: Backend, zk: KazooClient, name: str
) -> None:
    lock = zk.Lock(folder(name), "somebody")
    lock.acquire()
    tokens = [zk.exists(queue(zk, name)[0]).czxid]
    with backend.enqueue(request(name, 20.0)) as ticket:
        assert ticket.poll() is None
        tokens.append(zk.exists(queue(zk, name)[1]).czxid)
        for now in (False, True):
            for token in tokens:
                assert not other.revoke(name, token, None, BY, 5.0, now=now)
        assert len(queue(zk, name)) == 2
    lock.release()


# --- fence registers --------------------------------------------------------------------------------------------------


def register(name: str, index: int) -> str:
    return f"/distlock/fence/{quote(name, safe='')}/{index}"


def test_a_register_is_a_node(backend: Backend, zk: KazooClient, name: str) -> None:
    backend.advance_fence(name, 3, 9, 5.0)
    path = register(name, 3)
    assert data(zk, path) == {"version": 1, "token": 9}
    assert zk.exists(path).ephemeralOwner == 0
    backend.reset_fence(name, 3, 5.0)
    assert data(zk, path) == {"version": 1, "token": 0}


@pytest.mark.parametrize("stored", [LATER, b"7", b"{}", b'{"version":1}'])
def test_a_register_of_an_unknown_layout_lets_nothing_pass(
    backend: Backend, zk: KazooClient, name: str, stored: bytes
) -> None:
    backend.advance_fence(name, 0, 1, 5.0)
    path = register(name, 0)
    zk.set(path, stored)
    for ask in (lambda: backend.advance_fence(name, 0, 9, 5.0), lambda: backend.reset_fence(name, 0, 5.0)):
        with pytest.raises(Unavailable, match="in a layout that this program does not know") as error:
            ask()
        assert error.value.permanent
    assert zk.get(path)[0] == stored


def test_a_reset_does_not_let_a_late_one_write_a_smaller_token(backend: Backend, zk: KazooClient, name: str) -> None:
    """One that had read the register before: the version it has read does not come again."""
    path = register(name, 0)
    backend.advance_fence(name, 0, 5, 5.0)
    seen = {zk.exists(path).version}
    for token in range(3):
        backend.reset_fence(name, 0, 5.0)
        backend.advance_fence(name, 0, 100 + token, 5.0)
        assert zk.exists(path).version not in seen
        seen.add(zk.exists(path).version)
    assert json.loads(zk.get(path)[0])["token"] == 102
