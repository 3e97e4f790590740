"""What the ZooKeeper engine stores: nodes that kazoo's Lock understands, and nothing that stays but a token."""

from __future__ import annotations

import threading
import time

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

import zookeeper_fixtures
from contenders import Contender, acquire, client, never, request, take, try_once
from distlock.backends.base import Backend, LeaseLost, Request, Unavailable
from distlock.backends.zookeeper import ZooKeeperBackend
from distlock.clock import boottime
from processes import wait_until
from zookeeper_fixtures import data, folder, opened, queue
from zookeeper_servers import ZooKeeperServer

server = zookeeper_fixtures.server
zk = zookeeper_fixtures.zk
backend = zookeeper_fixtures.backend
other = zookeeper_fixtures.other
name = zookeeper_fixtures.name


# --- layout ---------------------------------------------------------------------------------------------------------


def test_a_lease_is_an_ephemeral_node_of_its_session(backend: ZooKeeperBackend, zk: KazooClient, name: str) -> None:
    grant = take(backend, name, ttl=20.0, owner="me")
    (path,) = queue(zk, name)
    stored, stat = zk.get(path)
    assert path[len(folder(name)) + 1 :][32:-10] == "__lock__"
    assert stored.isascii()
    assert stat.czxid == grant.token
    assert stat.ephemeralOwner
    told = data(zk, path)
    assert (told["version"], told["owner"], told["ttl"], told["beat"]) == (1, "me", 20.0, None)
    wait_until(lambda: zk.get(folder(name))[0])
    assert data(zk, folder(name)) == {"version": 1, "token": grant.token}
    backend.release(grant, 5.0)
    assert queue(zk, name) == []


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("p", "p"),
        (".", "%2E"),
        ("..", "%2E%2E"),
        ("...", "..."),
        ("a~b", "a%7Eb"),
        ("%2E", "%252E"),
        ("/p q", "%2Fp%20q"),
        ("é", "%C3%A9"),
    ],
)
def test_every_byte_but_a_few_is_encoded(backend: ZooKeeperBackend, zk: KazooClient, name: str, node: str) -> None:
    assert backend.places(name) == (f"/distlock/lock/{node}",)
    take(backend, name)
    assert len(zk.get_children(f"/distlock/lock/{node}")) == 1
    assert name in [state.name for state in backend.locks(5.0)]


def test_a_chroot_is_made_and_is_a_world_of_its_own(server: ZooKeeperServer, backend: Backend, zk: KazooClient) -> None:
    take(backend, "here")
    with opened(f"{server.url}/some/where") as below:
        assert below.inspect("here", 5.0).held is False
        assert zk.exists("/some") is None
        take(below, "here")
        assert len(zk.get_children("/some/where/distlock/lock/here")) == 1
        assert below.places("here") == ("/some/where/distlock/lock/here",)


def test_nothing_stays_of_who_did_not_get_it(server: ZooKeeperServer, zk: KazooClient, name: str) -> None:
    """Neither a node nor a session."""
    with opened(server.url) as one, opened(server.url) as two:
        grant = take(one, name)
        before = server.sessions()
        for _ in range(5):
            assert try_once(two, name) is None
        with two.enqueue(request(name, 20.0)) as ticket, never() as cancel:
            assert ticket.poll() is None
            ticket.wait(0.1, cancel)
        two.inspect(name, 5.0)
        two.close()
        assert len(queue(zk, name)) == 1
        assert server.sessions() == before
        one.release(grant, 5.0)
    assert len(server.sessions()) == len(before) - 1
    assert zk.get_children(folder(name)) == []


def test_the_clock_is_asked_without_a_trace(backend: ZooKeeperBackend, zk: KazooClient, name: str) -> None:
    take(backend, name)
    assert backend.inspect(name, 5.0).expires_in
    wait_until(lambda: zk.get_children("/distlock") == ["lock"])


# --- kazoo's own Lock -----------------------------------------------------------------------------------------------


def test_kazoo_is_excluded_and_waits(backend: Backend, zk: KazooClient, name: str) -> None:
    grant = take(backend, name)
    lock = zk.Lock(folder(name))
    assert lock.acquire(blocking=False) is False
    with pytest.raises(LockTimeout):
        lock.acquire(timeout=0.3)
    had = threading.Event()

    def wait() -> None:
        lock.acquire()
        had.set()

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: len(queue(zk, name)) == 2)
    for _ in range(3):
        grant = backend.renew(grant, 5.0)
        assert not had.wait(0.1)
    backend.release(grant, 5.0)
    assert had.wait(5)
    thread.join()
    lock.release()


def test_kazoo_excludes_and_is_waited_for(backend: Backend, zk: KazooClient, name: str) -> None:
    lock = zk.Lock(folder(name), "somebody")
    lock.acquire()
    assert try_once(backend, name) is None
    state = backend.inspect(name, 5.0)
    assert (state.held, state.holder, state.token, state.expires_in) == (True, None, None, None)
    with backend.enqueue(request(name, 20.0)) as ticket:
        assert ticket.poll() is None
        released: list[float] = []

        def release() -> None:
            released.append(boottime())
            lock.release()

        threading.Timer(0.5, release).start()
        acquire(ticket)
        assert 0 <= boottime() - released[0] < 0.5


def test_kazoo_and_distlock_take_turns_in_their_order(
    backend: Backend, other: Backend, zk: KazooClient, name: str
) -> None:
    grant = take(backend, name)
    served: list[str] = []
    locks = [zk.Lock(folder(name)) for _ in range(2)]

    def with_kazoo(index: int) -> None:
        with locks[index]:
            served.append(f"kazoo {index}")

    threads = [threading.Thread(target=with_kazoo, args=(index,)) for index in range(2)]
    threads[0].start()
    wait_until(lambda: len(queue(zk, name)) == 2)
    with other.enqueue(request(name, 20.0)) as ticket:
        assert ticket.poll() is None
        threads[1].start()
        wait_until(lambda: len(queue(zk, name)) == 4)
        backend.release(grant, 5.0)
        grant = acquire(ticket)
        assert served == ["kazoo 0"]
        other.release(grant, 5.0)
    for thread in threads:
        thread.join(10)
    assert served == ["kazoo 0", "kazoo 1"]


@pytest.mark.parametrize("kind", ["ReadLock", "WriteLock"])
def test_kazoos_other_locks_exclude_too(backend: Backend, zk: KazooClient, name: str, kind: str) -> None:
    lock = getattr(zk, kind)(folder(name))
    lock.acquire()
    assert try_once(backend, name) is None
    lock.release()
    grant = take(backend, name)
    assert lock.acquire(blocking=False) is False
    backend.release(grant, 5.0)


def test_kazoo_shows_distlocks_owners(backend: Backend, zk: KazooClient, name: str) -> None:
    take(backend, name, owner="me")
    (told,) = zk.Lock(folder(name)).contenders()
    assert '"owner":"me"' in told


# --- nodes that go, come back, or are somebody else's ----------------------------------------------------------------


def test_a_removed_node_is_a_lost_lease(backend: ZooKeeperBackend, zk: KazooClient, name: str) -> None:
    grant = take(backend, name)
    wait_until(lambda: backend.alarm(grant) is not None)
    zk.delete(queue(zk, name)[0])
    with pytest.raises(LeaseLost, match="its node was removed, or its session has ended"):
        backend.renew(grant, 5.0)
    with pytest.raises(LeaseLost):
        backend.renew(grant, 5.0)
    backend.release(grant, 5.0)
    assert try_once(backend, name)


def test_the_folder_may_be_removed_and_tokens_grow_on(backend: Backend, zk: KazooClient, name: str) -> None:
    """As `purge` will do with what is not used."""
    grant = take(backend, name)
    backend.release(grant, 5.0)
    zk.delete(folder(name))
    later = take(backend, name)
    assert (later.token or 0) > (grant.token or 0)


def test_a_waiter_whose_node_was_removed_queues_again(
    backend: Backend, other: Backend, zk: KazooClient, name: str
) -> None:
    grant = take(backend, name)
    with other.enqueue(request(name, 20.0)) as ticket, never() as cancel:
        assert ticket.poll() is None
        zk.delete(queue(zk, name)[1])
        until = boottime() + 5
        while len(queue(zk, name)) < 2:
            assert boottime() < until
            ticket.wait(0.2, cancel)
            assert ticket.poll() is None
        backend.release(grant, 5.0)
        assert acquire(ticket)


def test_a_holders_node_is_never_taken_for_a_dead_waiters(
    backend: Backend, other: Backend, zk: KazooClient, name: str
) -> None:
    """It has waited, so its node has said that it beats."""
    first = take(backend, name)
    with backend.enqueue(request(name, 30.0)) as ticket:
        assert ticket.poll() is None
        backend.release(first, 5.0)
        grant = acquire(ticket)
    assert data(zk, queue(zk, name)[0])["beat"] is None
    with other.enqueue(request(name, 30.0)) as ticket, never() as cancel:
        until = boottime() + 6
        while boottime() < until:
            assert ticket.poll() is None
            ticket.wait(1.0, cancel)
    backend.renew(grant, 5.0)


def test_a_waiter_thought_dead_is_not_granted(backend: Backend, other: Backend, zk: KazooClient, name: str) -> None:
    """It was away for long, its node was removed, and another one has the lock when it comes back."""
    held = take(backend, name)
    with other.enqueue(request(name, 30.0)) as away:
        assert away.poll() is None
        backend.release(held, 5.0)  # it has its turn, and does not see it
        start = boottime()
        wait_until(lambda: try_once(backend, name))
        assert 3.0 < boottime() - start < 5.5
        assert away.poll() is None
        assert len(queue(zk, name)) == 2


def test_waiters_that_beat_are_alive_for_long(
    server: ZooKeeperServer, backend: Backend, other: Backend, name: str
) -> None:
    take(backend, name, ttl=30.0)
    with Contender(server.url, name) as one, other.enqueue(request(name, 30.0)) as ticket, never() as cancel:
        one.expect("waiting")
        until = boottime() + 7
        while boottime() < until:
            assert ticket.poll() is None
            ticket.wait(1.0, cancel)
        waiting = [waiter.owner for waiter in backend.inspect(name, 5.0).waiters]
        assert waiting[0] == one.owner
        assert len(waiting) == 2


def test_a_waiter_asks_about_once_a_second(
    server: ZooKeeperServer, backend: Backend, other: Backend, name: str
) -> None:
    take(backend, name)
    with other.enqueue(request(name, 30.0)) as ticket, never() as cancel:
        assert ticket.poll() is None

        def received() -> int:
            return int(server.word("srvr").partition("Received: ")[2].split()[0])

        before, start = received(), boottime()
        while boottime() < start + 4:
            ticket.wait(2.0, cancel)
            assert ticket.poll() is None
        # Each is a write and a look; now and then the session is taken up again, on a new connection.
        assert received() - before <= 4 * 4
        assert boottime() - start < 6


# --- other layouts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [b'{"version":2,"token":5}', b'{"version":1}', b"127.0.0.1", b"[]", b'{"token":5}'])
def test_an_unknown_layout_is_never_a_free_lock(backend: Backend, zk: KazooClient, name: str, stored: bytes) -> None:
    zk.create(folder(name), stored, makepath=True)
    for ask in (lambda: try_once(backend, name), lambda: backend.inspect(name, 5.0), lambda: list(backend.locks(5.0))):
        with pytest.raises(Unavailable, match="in a layout that this program does not know") as error:
            ask()
        assert error.value.permanent
        assert folder(name) in str(error.value)
    assert zk.get_children(folder(name)) == []
    zk.delete(folder(name))


def test_a_waiter_of_an_unknown_layout_is_told(backend: Backend, zk: KazooClient, name: str) -> None:
    take(backend, name)
    zk.create(f"{folder(name)}/later__lock__", b'{"version":2}', ephemeral=True, sequence=True)
    for ask in (lambda: try_once(backend, name), lambda: backend.inspect(name, 5.0)):
        with pytest.raises(Unavailable, match="in a layout"):
            ask()
    zk.delete(queue(zk, name)[-1])


@pytest.mark.parametrize("stored", [b"", b"somebody", b"\xff\xfe", b"{}", b'{"version":1,"owner":7}'])
def test_a_foreign_node_is_a_foreign_holder(backend: Backend, zk: KazooClient, name: str, stored: bytes) -> None:
    zk.create(f"{folder(name)}/{'0' * 32}__lock__", stored, ephemeral=True, sequence=True, makepath=True)
    assert try_once(backend, name) is None
    state = backend.inspect(name, 5.0)
    assert (state.held, state.holder, state.token) == (True, None, None)


def test_news_of_the_node_before_us_is_not_its_end(backend: Backend, zk: KazooClient, name: str) -> None:
    """One that is not ephemeral may have children, which a watch tells of too."""
    zk.ensure_path(folder(name))
    before = zk.Lock(folder(name))
    before.acquire(ephemeral=False)
    (path,) = queue(zk, name)
    with backend.enqueue(request(name, 20.0)) as ticket, never() as cancel:
        assert ticket.poll() is None
        for _ in range(3):
            zk.create(f"{path}/child")
            ticket.wait(1.0, cancel)
            assert ticket.poll() is None
            zk.delete(f"{path}/child")
        before.release()
        assert acquire(ticket, 2.0)


def test_what_is_no_contender_is_in_nobodys_way(backend: Backend, zk: KazooClient, name: str) -> None:
    for node in ("leases", "x__lock__", "x__lock__123", "__lock__00000000011", "x__lock__0000000001.old"):
        zk.ensure_path(f"{folder(name)}/{node}")
    assert try_once(backend, name)


def test_text_that_is_no_unicode_is_kept_readable(backend: Backend, name: str) -> None:
    odd = client("me")._replace(command="\udcff\n", host="h\udcfe")
    with backend.enqueue(Request(name, 20.0, odd)) as ticket:
        acquire(ticket)
    holder = backend.inspect(name, 5.0).holder
    assert holder is not None
    assert (holder.command, holder.host) == ("\\udcff\n", "h\\udcfe")


def test_the_sessions_end_shows_as_free_with_its_token(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name, ttl=1.0)
    seen = []
    while (state := other.inspect(name, 5.0)).held:
        seen.append(state.expires_in or 0)
        time.sleep(0.05)
    assert seen == sorted(seen, reverse=True)
    assert (state.token, state.holder) == (grant.token, None)
