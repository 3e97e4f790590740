"""What a redlock leaves for later runs, a lock that is kept, and one that is taken away: a majority decides."""

from __future__ import annotations

import pytest

import redlock_fixtures
from contenders import client, take, try_once
from distlock.backends.base import (
    SUCCESS,
    Backend,
    LeaseLost,
    LockState,
    Mark,
    Marked,
    Revoked,
    Unavailable,
    Unmarked,
)
from distlock.backends.redlock_view import latest, merged
from processes import wait_until
from redlock_fixtures import having
from servers import RedisServer

nodes = redlock_fixtures.nodes
open_more = redlock_fixtures.open_more
backend = redlock_fixtures.backend
other = redlock_fixtures.other

KEY = Mark("key", 10.0, 60.0)


def test_a_mark_that_one_server_missed_and_another_one_forgot(nodes: list[RedisServer], backend: Backend) -> None:
    """Each majority has one that knows it, unless that forgets."""
    grant = take(backend, "n")
    nodes[0].kill()
    backend.mark(grant, KEY, 5.0)
    nodes[0].restart()
    nodes[1].kill()
    found = backend.marked("n", "key", 5.0)
    assert found
    assert 10.0 <= found.age < 20.0
    nodes[1].restart()
    assert backend.marked("n", "key", 5.0), "all are asked"
    nodes[2].restart()
    assert backend.marked("n", "key", 5.0) is None


def test_of_two_marks_the_later_one_counts(nodes: list[RedisServer], backend: Backend) -> None:
    """Whichever servers know it, and whatever their clocks say."""
    backend.release(take(backend, "n"), 5.0, (KEY,))
    nodes[0].freeze()
    backend.release(take(backend, "n"), 5.0, (KEY._replace(ago=5.0),))
    nodes[0].thaw()
    for _ in range(3):
        found = backend.marked("n", "key", 5.0)
        assert found
        assert 5.0 <= found.age < 10.0


@pytest.mark.parametrize("refusing", [1, 2])
def test_a_mark_that_some_refuse(nodes: list[RedisServer], backend: Backend, refusing: int) -> None:
    """The lock is given back all the same, and nobody is told of a success that could not be written."""
    grant = take(backend, "n")
    for node in nodes[:refusing]:
        node.command("ACL", "SETUSER", "default", "-hset")
    if refusing == 1:
        backend.mark(grant, KEY, 5.0)
        backend.release(grant, 5.0, (KEY,))
        assert backend.marked("n", "key", 5.0)
    else:
        with pytest.raises(Unavailable, match="only 1 of 3"):
            backend.mark(grant, KEY, 5.0)
        with pytest.raises(Unmarked, match="at most of its servers"):
            backend.release(grant, 5.0, (KEY,))
    wait_until(lambda: having(nodes) == [None] * 3)
    backend.release(take(backend, "n"), 5.0, (Mark(SUCCESS, 0.0, 60.0),))
    wait_until(lambda: having(nodes) == [None] * 3)


def test_a_lock_is_kept_without_one_of_the_servers(nodes: list[RedisServer], backend: Backend, other: Backend) -> None:
    grant = take(backend, "n", owner="me")
    nodes[0].kill()
    backend.release(grant, 5.0, (), 60.0)
    assert having(nodes[1:]) == [b"kept:me"] * 2
    nodes[0].restart()
    assert try_once(other, "n") is None
    assert other.inspect("n", 5.0).kept
    assert other.revoke("n", None, "me", "alice@ops1", 5.0, now=False)
    assert try_once(other, "n")


@pytest.mark.parametrize("now", [False, True])
def test_a_holder_is_stopped_though_some_servers_do_not_hear_of_it(
    nodes: list[RedisServer], backend: Backend, other: Backend, now: bool
) -> None:
    grant = take(backend, "n", owner="me")
    nodes[0].kill()
    assert not other.revoke("n", 5, None, "alice@ops1", 5.0, now=now), "nobody has a token"
    assert not other.revoke("n", None, "you", "alice@ops1", 5.0, now=now)
    backend.renew(grant, 5.0)
    assert other.revoke("n", None, "me", "alice@ops1", 5.0, now=now)
    nodes[0].restart()
    nodes[1].restart()  # of those that were told, one forgets: it is not given the lease again
    with pytest.raises(LeaseLost if now else Revoked):
        backend.renew(grant, 5.0)
    assert having(nodes) == [None, None, None if now else b"me"]


def test_most_do_not_hear_of_it(nodes: list[RedisServer], backend: Backend, other: Backend) -> None:
    """Whether it was done is not known then; the holder believes the one that says so."""
    grant = take(backend, "n", ttl=30.0, owner="me")
    for node in nodes[:2]:
        node.freeze()
    with pytest.raises(Unavailable, match="only 1 of 3"):
        other.revoke("n", None, "me", "alice@ops1", 0.5, now=False)
    for node in nodes[:2]:
        node.thaw()
    with pytest.raises(Revoked, match="alice@ops1"):
        backend.renew(grant, 5.0)


def test_one_knows_the_holder_one_does_not_and_one_is_silent(nodes: list[RedisServer], backend: Backend) -> None:
    take(backend, "n", owner="me")
    nodes[0].restart()
    nodes[1].kill()
    with pytest.raises(Unavailable, match="only a few of the servers that answer know the holder of 'n': "):
        backend.revoke("n", None, "me", "alice@ops1", 5.0, now=False)


# -- what the servers say, put together --------------------------------------------------------------------------------

FREE = LockState("n", False, 5, None, None, None, ())


def held_by(owner: str) -> LockState:
    return LockState("n", True, 5, client(owner), 10.0, 9.0, ())


def test_merging_what_was_taken_away_and_what_is_kept() -> None:
    one = held_by("a")
    assert merged("n", [one, one._replace(revoked_by="x"), FREE], 2).revoked_by == "x"
    assert merged("n", [one, held_by("b")._replace(revoked_by="x"), one], 2).revoked_by is None
    kept = one._replace(kept=True)
    assert [merged("n", states, 2).kept for states in ([kept, kept, one], [kept, one, one], [kept, FREE, FREE])] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([], None),
        ([None, None], None),
        ([None, Marked(5.0, 9.0)], Marked(5.0, 9.0)),
        # A server's clock is an hour ahead, and it has missed the last one.
        ([Marked(3600.0, 90.0), Marked(5.0, 9.0), None], Marked(5.0, 9.0)),
        # The same mark.
        ([Marked(5.002, 9.001), Marked(5.001, 9.0), Marked(5.0, 9.002)], Marked(5.002, 9.001)),
    ],
)
def test_the_latest_of_marks(marks: list[Marked | None], expected: Marked | None) -> None:
    assert latest(marks) == expected
    assert latest(reversed(marks)) == expected
