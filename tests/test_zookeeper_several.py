"""Locks for several holders, as the ZooKeeper engine stores them: nodes, turns, and kazoo's own Lock among them."""

from __future__ import annotations

import json
import select
import threading
import time
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

import zookeeper_fixtures
from contenders import Contender, acquire, never, request, take, try_once
from distlock.backends.base import Backend, LeaseLost, OtherHolders, Unavailable
from distlock.clock import boottime
from processes import wait_until
from proxy import Proxy
from servers import HOST
from zookeeper_fixtures import crowd, data, folder, opened, queue
from zookeeper_servers import ZooKeeperServer

server = zookeeper_fixtures.server
zk = zookeeper_fixtures.zk
backend = zookeeper_fixtures.backend
other = zookeeper_fixtures.other


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def test_one_of_several_is_a_node_that_says_of_how_many(backend: Backend, zk: KazooClient, name: str) -> None:
    """An earlier program reads it as a holder like others, and waits behind it."""
    first, second = (take(backend, name, owner=owner, holders=12) for owner in ("me", "you"))
    for path, grant, index in zip(queue(zk, name), (first, second), (0, 1), strict=True):
        assert path[len(folder(name)) + 1 :][32:-10] == "-of-12__lock__"
        told = data(zk, path)
        assert (told["version"], told["owner"], told["ttl"], told["beat"]) == (1, grant.owner, 30.0, None)
        assert (told["index"], told["token"], grant.holder_index) == (index, grant.token, index)
        assert zk.exists(path).czxid == grant.token
    assert data(zk, folder(name)) == {"version": 1, "token": second.token}


def test_a_plain_lock_is_as_it_was(backend: Backend, other: Backend, zk: KazooClient, name: str) -> None:
    take(backend, name)
    with other.enqueue(request(name, 20.0)) as ticket:
        assert ticket.poll() is None
        for path in queue(zk, name):
            assert path[len(folder(name)) + 1 :][32:-10] == "__lock__"
            assert not {"index", "token"} & data(zk, path).keys()


def test_many_begin_at_the_same_time(server: ZooKeeperServer, zk: KazooClient, name: str) -> None:
    """Each has an index of its own, and there are never more than may be."""
    granted = crowd([server.url], name)
    assert data(zk, folder(name))["token"] == max(grant.token or 0 for grant in granted)
    assert queue(zk, name) == []


def test_the_next_one_is_woken_by_whoever_begins(server: ZooKeeperServer, backend: Backend, name: str) -> None:
    """Two places are free at once, and all but the first waiter are woken by the one before them."""
    grants = [take(backend, name, holders=2) for _ in range(2)]
    with ExitStack() as stack:
        waiters = [stack.enter_context(Contender(server.url, name, "--holders=2")) for _ in range(4)]
        for waiter in waiters:
            waiter.expect("waiting")
        time.sleep(0.1)
        start = boottime()
        for grant in grants:
            backend.release(grant, 5.0)
        for waiter in waiters[:2]:
            waiter.granted()
        for waiter in waiters[:2]:
            waiter.tell("release")
        last = max(waiter.granted()[1] for waiter in waiters[2:])
        assert last - start < 1.0, "without waiting for a beat"


def test_who_begins_later_has_the_greater_token(backend: Backend, other: Backend, zk: KazooClient, name: str) -> None:
    """Though its node is the earlier one. Another process finds the lease by it."""
    grants = [take(backend, name, holders=2) for _ in range(2)]
    with (
        other.enqueue(request(name, 30.0, holders=2)) as early,
        backend.enqueue(request(name, 30.0, holders=2)) as late,
    ):
        assert early.poll() is None
        assert late.poll() is None
        for grant in grants:
            backend.release(grant, 5.0)
        first, second = late.poll(), early.poll()
    assert first
    assert second
    assert (first.token or 0) < (second.token or 0)
    assert zk.exists(queue(zk, name)[0]).czxid < (first.token or 0)
    backend.renew(second, 5.0)
    assert backend.revoke(name, second.token, None, "me", 5.0, now=True)
    with pytest.raises(LeaseLost):
        other.renew(second, 5.0)
    backend.renew(first, 5.0)


def test_one_holder_behind_several_has_no_smaller_token(
    backend: Backend, other: Backend, zk: KazooClient, name: str
) -> None:
    """Those were before it, and took tokens that had passed its node's when it was not looking."""
    lock = zk.Lock(folder(name), "somebody")
    lock.acquire()
    with backend.enqueue(request(name, 30.0, holders=2)) as several, other.enqueue(request(name, 30.0)) as plain:
        assert several.poll() is None
        assert plain.poll() is None
        node = queue(zk, name)[2]
        passed = zk.exists(node).czxid + 1
        zk.set(folder(name), json.dumps({"version": 1, "token": passed}).encode())
        lock.release()
        several.close()
        grant = acquire(plain)
    assert (grant.token or 0) > passed
    assert node not in queue(zk, name)


def test_beginning_whose_answer_was_lost(server: ZooKeeperServer, backend: Backend, zk: KazooClient, name: str) -> None:
    """It keeps the index and the token that it had."""
    before = take(backend, name, holders=3)
    with Proxy(server.port) as proxy, opened(f"zookeeper://{HOST}:{proxy.port}") as cut:
        asked = request(name, 9.0, holders=3)
        proxy.delay_answers(0.4)

        def lose_the_answer() -> None:
            wait_until(lambda: len(queue(zk, name)) == 2 and "index" in data(zk, queue(zk, name)[1]))
            proxy.black_hole()

        thread = threading.Thread(target=lose_the_answer)
        thread.start()
        with cut.enqueue(asked) as ticket, pytest.raises(Unavailable, match="does not answer"):
            ticket.poll()
        thread.join()
        path = queue(zk, name)[1]
        token = data(zk, path)["token"]
        between = take(backend, name, holders=3)
        proxy.let_pass()
        with cut.enqueue(asked) as ticket:
            grant = acquire(ticket, 8.0)
        assert (grant.holder_index, grant.token) == (1, token)
        assert (before.holder_index, between.holder_index) == (0, 2)
        assert len(queue(zk, name)) == 3
        cut.renew(grant, 5.0)


def test_a_dead_one_in_front_of_holders_is_removed(
    server: ZooKeeperServer, backend: Backend, other: Backend, zk: KazooClient, name: str
) -> None:
    """It had its turn and did not see it, and those behind it hold the lock and look no more."""
    grants = [take(backend, name, holders=3) for _ in range(3)]
    with Contender(server.url, name, "--holders=3") as dead:
        dead.expect("waiting")
        node = queue(zk, name)[-1]
        dead.kill()
        with other.enqueue(request(name, 30.0, holders=3)) as ticket:
            assert ticket.poll() is None
            for grant in grants[:2]:
                backend.release(grant, 5.0)
            later = acquire(ticket, 2.0)
        assert [path == node for path in queue(zk, name)] == [False, True, False]
        start = boottime()
        take(backend, name, holders=3)
        assert boottime() - start < 5.5
        assert node not in queue(zk, name)
    other.renew(later, 5.0)
    backend.renew(grants[2], 5.0)


def test_an_ended_node_is_its_own_holders_loss(backend: Backend, other: Backend, zk: KazooClient, name: str) -> None:
    grants = [take(backend, name, holders=3) for _ in range(3)]
    descriptors = [descriptor for grant in grants if (descriptor := backend.alarm(grant)) is not None]
    zk.delete(queue(zk, name)[1])
    assert len(descriptors) == 3
    assert select.select(descriptors, [], [], 1.0)[0] == [descriptors[1]]
    for at, grant in enumerate(grants):
        if at == 1:
            with pytest.raises(LeaseLost, match="its node was removed"):
                backend.renew(grant, 5.0)
        else:
            backend.renew(grant, 5.0)
    assert take(other, name, holders=3).holder_index == grants[1].holder_index


def test_a_waiter_asks_little(server: ZooKeeperServer, backend: Backend, other: Backend, name: str) -> None:
    """However many there are before it, and that they beat wakes only who is behind."""
    for _ in range(5):
        take(backend, name, holders=5)
    with ExitStack() as stack, never() as cancel:
        for _ in range(3):
            stack.enter_context(Contender(server.url, name, "--holders=5")).expect("waiting")
        ticket = stack.enter_context(other.enqueue(request(name, 30.0, holders=5)))
        assert ticket.poll() is None

        def received() -> int:
            return int(server.word("srvr").partition("Received: ")[2].split()[0])

        before, start = received(), boottime()
        while boottime() < start + 4:
            ticket.wait(2.0, cancel)
            assert ticket.poll() is None
        assert received() - before <= 4 * 4 * 8


# --- kazoo's own Lock, and other numbers ------------------------------------------------------------------------------


def test_kazoo_waits_for_the_last_of_them(backend: Backend, other: Backend, zk: KazooClient, name: str) -> None:
    grants = [take(backend, name, holders=2) for _ in range(2)]
    lock = zk.Lock(folder(name))
    had = threading.Event()

    def wait() -> None:
        lock.acquire()
        had.set()

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: len(queue(zk, name)) == 3)
    with other.enqueue(request(name, 30.0, holders=2)) as ticket:
        assert ticket.poll() is None
        backend.release(grants[0], 5.0)
        assert ticket.poll() is None, "who came after kazoo waits for it"
        assert not had.wait(0.3)
        backend.release(grants[1], 5.0)
        assert had.wait(5)
        thread.join()
        assert ticket.poll() is None
        state = backend.inspect(name, 5.0)
        assert (state.held, state.holder, state.holdings, len(state.waiters)) == (True, None, (), 1)
        lock.release()
        assert acquire(ticket, 1.0).holder_index == 0


def test_all_that_may_come_in_when_kazoo_goes(backend: Backend, other: Backend, zk: KazooClient, name: str) -> None:
    lock = zk.Lock(folder(name))
    lock.acquire()
    assert try_once(backend, name, holders=3) is None
    with ExitStack() as stack:
        tickets = [stack.enter_context(one.enqueue(request(name, 30.0, holders=3))) for one in (backend, other) * 2]
        for ticket in tickets:
            assert ticket.poll() is None
        lock.release()
        grants = [acquire(ticket, 1.0) for ticket in tickets[:3]]
        assert [grant.holder_index for grant in grants] == [0, 1, 2]
        assert tickets[3].poll() is None
        other.release(grants[1], 5.0)
        assert acquire(tickets[3], 1.0).holder_index == 1


@pytest.mark.parametrize(("theirs", "ours"), [(1, 2), (2, 1), (3, 2)])
def test_who_waits_with_another_number_is_refused_when_others_get_it(
    backend: Backend, other: Backend, zk: KazooClient, name: str, theirs: int, ours: int
) -> None:
    """Behind a foreign holder both wait; then one of them holds it."""
    lock = zk.Lock(folder(name))
    lock.acquire()
    with backend.enqueue(request(name, 30.0, holders=theirs)) as first:
        assert first.poll() is None
        with other.enqueue(request(name, 30.0, holders=ours)) as second:
            assert second.poll() is None
            lock.release()
            for _ in range(3):
                assert second.poll() is None, "the first has its turn, and does not hold it yet"
            assert not backend.inspect(name, 5.0).held
            acquire(first)
            with pytest.raises(OtherHolders, match="--max-holders"):
                second.poll()
    assert len(queue(zk, name)) == 1
