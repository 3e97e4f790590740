"""Several holders of a redlock: an index is had where a majority gave it, and nothing else counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import redlock_fixtures
from contenders import client, take, try_once
from distlock.backends.base import Backend, Holding, LeaseLost, LockState, OtherHolders
from distlock.backends.redis import RedisBackend
from distlock.backends.redlock_view import merged
from distlock.clock import boottime
from processes import wait_until
from redis_fixtures import keys, opened, token_key
from servers import RedisServer

nodes = redlock_fixtures.nodes
open_more = redlock_fixtures.open_more
backend = redlock_fixtures.backend
other = redlock_fixtures.other

HOLDERS = "distlock:{lock:n}:holders"


@pytest.fixture
def at(nodes: list[RedisServer]) -> Iterator[list[RedisBackend]]:
    """Each of the servers alone."""
    with ExitStack() as stack:
        yield [stack.enter_context(opened(node.url)) for node in nodes]


def indexes(nodes: list[RedisServer], owner: str) -> list[int | None]:
    """What each server has numbered this owner."""
    told = [node.command("HGET", HOLDERS, owner) for node in nodes]
    return [None if record is None else int(record.split()[0]) for record in told]


def test_a_server_that_counts_differently_is_put_right(
    nodes: list[RedisServer], at: list[RedisBackend], backend: Backend
) -> None:
    """As soon as it can be; until then it has no vote for us."""
    stranger = take(at[0], "n", holders=3)
    grant = take(backend, "n", holders=3)
    assert grant.holder_index == 0
    wait_until(lambda: indexes(nodes, grant.owner) == [None, 0, 0])
    backend.renew(grant, 5.0)
    at[0].release(stranger, 5.0)
    backend.renew(grant, 5.0)
    wait_until(lambda: indexes(nodes, grant.owner) == [0, 0, 0])
    backend.release(grant, 5.0)
    for node in nodes:
        wait_until(lambda: set(keys(node)) == {token_key("n")})  # noqa: B023


def test_servers_none_of_which_counts_as_another(
    nodes: list[RedisServer], at: list[RedisBackend], backend: Backend
) -> None:
    """The gaps of all are different: it is the one that all have, and is found at once."""
    for number in range(3):
        for _ in range(number):
            take(at[number], "n", holders=4)
    start = boottime()
    grant = take(backend, "n", holders=4)
    assert grant.holder_index == 2
    assert boottime() - start < 1.0
    wait_until(lambda: indexes(nodes, grant.owner) == [2, 2, 2])


def test_an_index_at_a_minority_is_not_had(nodes: list[RedisServer], at: list[RedisBackend], backend: Backend) -> None:
    take(at[0], "n", holders=2)
    take(at[0], "n", holders=2)
    take(at[1], "n", holders=2)
    assert try_once(backend, "n", holders=2) is None  # 1 at one server, 0 at another
    assert sum(node.command("HLEN", HOLDERS) for node in nodes) == 3


def test_a_place_with_another_index_does_not_keep_the_lease(nodes: list[RedisServer], backend: Backend) -> None:
    """As one that was had by a try of which nobody waited for the answer."""
    grant = take(backend, "n", holders=3)
    wait_until(lambda: indexes(nodes, grant.owner) == [0, 0, 0])
    for node in nodes[:2]:
        record = node.command("HGET", HOLDERS, grant.owner)
        node.command("HSET", HOLDERS, grant.owner, b"2" + record[1:])
    with pytest.raises(LeaseLost, match="at most of its servers"):
        backend.renew(grant, 5.0)


def test_servers_that_restart_without_their_data_one_by_one(
    nodes: list[RedisServer], backend: Backend, other: Backend
) -> None:
    """In the end the second may come to know it first."""
    first, second = take(backend, "n", holders=2), take(other, "n", holders=2)
    assert (first.holder_index, second.holder_index) == (0, 1)
    for node in nodes:
        node.restart()
        second = other.renew(second, 5.0)
        wait_until(lambda: indexes(nodes, second.owner) == [1, 1, 1])  # noqa: B023
        assert try_once(backend, "n", holders=2) is None
        first = backend.renew(first, 5.0)
        wait_until(lambda: indexes(nodes, first.owner) == [0, 0, 0])  # noqa: B023
    assert len(backend.inspect("n", 5.0).holdings) == 2


def test_what_a_few_say_of_another_number(
    nodes: list[RedisServer], at: list[RedisBackend], backend: Backend, other: Backend
) -> None:
    """May be the rest of a try; what most say is told in their words."""
    strangers = [take(at[0], "n", holders=2), take(at[1], "n", holders=4)]
    assert try_once(backend, "n", holders=3) is None
    assert try_once(backend, "n") is None
    at[1].release(strangers[1], 5.0)
    take(at[1], "n", holders=2)
    for holders, wanted in ((3, "--max-holders 3"), (1, "one holder")):
        with pytest.raises(
            OtherHolders, match=f"^'n' is held with --max-holders 2: nobody gets it with {wanted} until"
        ):
            try_once(other, "n", holders=holders)
    assert nodes[2].command("EXISTS", "lock:n") == 0


def test_many_at_once(open_more: Callable[[], Backend]) -> None:
    """Never two with one index, nor an index that there is not; each of them gets a turn."""
    held: set[int] = set()
    guard = threading.Lock()
    wrong: list[object] = []
    turns: list[int] = []

    def work(backend: Backend) -> None:
        try:
            for _ in range(5):
                grant = take(backend, "n", seconds=60.0, holders=3)
                with guard:
                    if grant.holder_index in held or not 0 <= grant.holder_index < 3:
                        wrong.append(grant)
                    held.add(grant.holder_index)
                    turns.append(grant.holder_index)
                grant = backend.renew(grant, 5.0)
                with guard:
                    held.discard(grant.holder_index)
                backend.release(grant, 5.0)
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=work, args=(open_more(),)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(turns) == 40
    assert set(turns) == {0, 1, 2}


# -- what the servers say, put together --------------------------------------------------------------------------------


def several(*holders: tuple[int, str, float], most: int = 2) -> LockState:
    holdings = tuple(
        Holding(index, 5, client(owner), 10.0, expires_in, expires_in == 3.0) for index, owner, expires_in in holders
    )
    first = holdings[0]
    return LockState("n", True, 5, first.holder, 10.0, first.expires_in, (), max_holders=most, holdings=holdings)


FREE = LockState("n", False, 5, None, None, None, ())


@pytest.mark.parametrize(
    ("states", "held", "found"),
    [
        ([several((0, "a", 9.0)), FREE, FREE], False, []),
        ([several((0, "a", 9.0)), several((0, "a", 8.0)), FREE], True, [(0, "a", 8.0, False)]),
        (
            [several((0, "a", 9.0), (1, "b", 3.0)), several((0, "a", 8.0), (1, "b", 3.0)), several((0, "a", 7.0))],
            True,
            [(0, "a", 8.0, False), (1, "b", 3.0, True)],
        ),
        ([several((0, "a", 9.0)), several((1, "a", 8.0)), several((1, "b", 8.0))], True, []),
        ([several((0, "a", 9.0), most=2), several((0, "a", 8.0), most=3), FREE], True, []),
        ([several((0, "a", 9.0)), several((0, "b", 9.0), (1, "a", 9.0)), FREE], True, []),
    ],
)
def test_merging(states: list[LockState], held: bool, found: list[tuple[int, str, float, bool]]) -> None:
    state = merged("n", states, 2)
    assert state.held is held
    assert [(one.holder_index, one.holder.owner, one.token, one.kept) for one in state.holdings] == [
        (index, owner, None, kept) for index, owner, _, kept in found
    ]
    assert [one.expires_in for one in state.holdings] == [pytest.approx(left - 0.102) for _, _, left, _ in found]
    assert (state.holder is None) == (not found)
    assert state.max_holders == (2 if found else 1)
