"""Locks in a real cluster: one slot each, redirections followed, a slot that moves under a holder and a waiter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from contenders import Contender, acquire, environment, request, take, try_once
from distlock.backends import open_backend
from distlock.backends.base import SUCCESS, Backend, ConfigurationError, Mark, Revoked, Unavailable
from distlock.backends.redis import RedisBackend
from distlock.backends.redis_slots import Node, Slots, slot_of
from distlock.clock import boottime
from processes import Lab, wait_until
from redis_groups import Cluster, cluster
from servers import HOST, RedisServer, free_port


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster") / "nodes") as one:
        yield one


@pytest.fixture
def backend(group: Cluster) -> Iterator[Backend]:
    one = open_backend(group.url, environment())
    yield one
    one.close()


@pytest.mark.parametrize("name", ["n", "a b/ж", "p/1", "x" * 200, "замок"])
def test_all_of_a_lock_is_in_one_slot(group: Cluster, backend: Backend, name: str) -> None:
    """Its channels too. As the server counts, and as we do."""
    names = [*backend.places(name), RedisBackend.channels(name) + "owner"]
    slots = {group.masters[0].command("CLUSTER", "KEYSLOT", one.encode()) for one in names}
    assert slots == {slot_of(one) for one in names}
    assert len(slots) == 1


def test_locks_are_spread_and_all_are_listed(group: Cluster, backend: Backend) -> None:
    names = [f"spread {number}" for number in range(30)]
    for name in names:
        take(backend, name)
        assert group.of(name).command("EXISTS", f"lock:{name}") == 1
    assert len({group.of(name).port for name in names}) == 3
    listed = [state.name for state in backend.locks(5.0) if state.name.startswith("spread")]
    assert sorted(listed) == sorted(names)


def test_one_node_is_enough_to_find_the_others(group: Cluster) -> None:
    for node in group.masters:
        one = open_backend(f"redis+cluster://{node.place}", environment())
        for name in ("a", "b", "c", "d", "e"):
            one.release(take(one, name), 5.0)
        one.close()


def test_nodes_that_do_not_answer_are_passed(group: Cluster) -> None:
    dead = f"{HOST}:{free_port()},{HOST}:{free_port()}"
    one = open_backend(f"redis+cluster://{dead},{group.masters[1].place}", environment())
    start = boottime()
    one.release(take(one, "n"), 5.0)
    assert boottime() - start < 1.0
    one.close()


class Move:
    """A slot on its way from one master to the next."""

    def __init__(self, group: Cluster, name: str) -> None:
        self.group = group
        self.source = group.of(name)
        self.target = next(node for node in group.masters if node is not self.source)
        self.slot = self.source.command("CLUSTER", "KEYSLOT", f"lock:{name}")

    def begin(self) -> None:
        self.target.command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.group.id_of(self.source))
        self.source.command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.group.id_of(self.target))

    def keys(self) -> list[bytes]:
        found: list[bytes] = self.source.command("CLUSTER", "GETKEYSINSLOT", self.slot, 100)
        return sorted(found)

    def move(self, keys: list[bytes]) -> None:
        if keys:
            self.source.command("MIGRATE", HOST, self.target.port, "", 0, 5000, "KEYS", *keys)

    def end(self) -> None:
        for node in (self.target, self.source, *self.group.masters):
            node.command("CLUSTER", "SETSLOT", self.slot, "NODE", self.group.id_of(self.target))


def test_a_slot_that_moves(group: Cluster) -> None:
    """Under a holder and a waiter: both follow, nobody else gets in, and the waiter is woken where the lock is now."""
    one, two, three = (open_backend(group.url, environment()) for _ in range(3))
    one.release(take(one, "moving"), 5.0, (Mark(SUCCESS, 1.0, 60.0),))
    held = take(one, "moving")
    with two.enqueue(request("moving", 30.0)) as ticket:
        assert ticket.poll() is None
        move = Move(group, "moving")
        move.begin()
        held = one.renew(held, 2.0)  # all of it is still here
        keys = move.keys()
        assert sorted(keys) == sorted(key.encode() for key in RedisBackend.keys("moving"))
        move.move([key for key in keys if b"queue" in key])
        with pytest.raises(Unavailable, match="is moving the lock's slot"):
            try_once(three, "moving", ttl=1.5)
        held = one.renew(held, 2.0)  # what a renewal needs is still here
        move.move([b"lock:moving"])
        start = boottime()
        for engine in (one, three):  # half of it is there
            with pytest.raises(Unavailable, match="is moving the lock's slot"):
                engine.renew(held, 0.5)
        assert 0.7 < boottime() - start < 1.5
        move.move(move.keys())
        held = one.renew(held, 2.0)  # by an ASK: it belongs to the one and is at the other
        assert ticket.poll() is None
        assert try_once(three, "moving") is None
        assert move.keys() == []
        move.end()
        held = one.renew(held, 2.0)
        assert try_once(three, "moving") is None
        one.release(held, 2.0)
        start = boottime()
        grant = acquire(ticket)
        # It has listened at the new place since its last poll there, or hears what goes through all nodes.
        assert boottime() - start < 0.5
    assert move.target.command("EXISTS", "lock:moving") == 1
    two.release(grant, 2.0)
    for backend in (one, two, three):
        backend.close()


def test_a_holder_hears_that_its_lease_was_taken_away_while_its_slot_moves(group: Cluster) -> None:
    """A renewal looks at no key that may be missing."""
    one, two = (open_backend(group.url, environment()) for _ in range(2))
    held = take(one, "revoked")
    assert two.revoke("revoked", held.token, None, "alice@ops1", 2.0, now=False)
    move = Move(group, "revoked")
    move.begin()
    for keys in ([], move.keys()):  # all of it is here, then there
        move.move(keys)
        with pytest.raises(Revoked, match="alice@ops1"):
            one.renew(held, 2.0)
    move.end()
    one.release(held, 2.0)
    assert two.inspect("revoked", 5.0).revoked_by is None
    for backend in (one, two):
        backend.close()


def test_a_waiter_is_woken_though_its_slot_has_just_moved(group: Cluster) -> None:
    """It listens where the slot was. What is published there comes through here."""
    one, two = (open_backend(group.url, environment()) for _ in range(2))
    held = take(one, "woken")
    with two.enqueue(request("woken", 30.0)) as ticket:
        assert ticket.poll() is None
        move = Move(group, "woken")
        move.begin()
        move.move(move.keys())
        move.end()
        one.release(held, 2.0)
        acquire(ticket, 2.0)
    one.close()
    two.close()


def test_a_move_that_takes_a_while_is_waited_out(tmp_path: Path, group: Cluster) -> None:
    lab = Lab(tmp_path, group.url)
    move = Move(group, "slow")
    move.begin()
    run = lab.start("-w", "20", "slow", "--", "true")
    with pytest.raises(AssertionError):
        wait_until(lambda: run.poll() is not None, 1.0)
    move.move(move.keys())
    move.end()
    assert run.wait(10) == 0
    lab.close()


def test_a_killed_waiter_is_dropped(group: Cluster, backend: Backend) -> None:
    held = take(backend, "dropped")
    with ExitStack() as stack:
        dead, living = (stack.enter_context(Contender(group.url, "dropped")) for _ in range(2))
        for waiter in (dead, living):
            waiter.expect("waiting")
        dead.kill()
        released = boottime()
        backend.release(held, 5.0)
        _, at = living.granted(2.0)
        assert at - released < 0.5


def test_a_cluster_that_is_down(tmp_path: Path) -> None:
    """A node that has no slots."""
    with RedisServer(
        tmp_path / "node", ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    ).running() as one:
        lab = Lab(tmp_path, f"redis+cluster://{one.place}")
        done = lab.run("-n", "job", "--", "true")
        assert done.returncode == 69
        assert b"no node of the cluster" in done.stderr
        assert done.stderr.count(b"\n") == 1
        lab.close()


def test_a_redis_that_is_no_cluster(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "one").running() as one:
        backend = open_backend(f"redis+cluster://{one.place}", environment())
        with pytest.raises(ConfigurationError, match=f"^{one.place} is no node of a Redis Cluster: use redis://$"):
            try_once(backend, "n")
        backend.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+cluster://", "it has HOST"),
        ("redis+cluster://h/1", "no databases but 0"),
        ("redis+cluster://h,h:6379", "h:6379 stands in it twice"),
        ("redis+cluster://h?db=1", "unknown query key 'db'"),
    ],
)
def test_urls_that_mean_nothing(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_backend(url, environment())


def test_a_map_of_slots() -> None:
    slots = Slots()
    assert slots.master(0) is None
    slots.learn(
        [
            [100, 200, [b"b", 2, b"id"], [b"c", 3, b"id"]],
            [0, 99, [b"", 1, b"id"]],
            [300, 300, [None, 4, b"id", []], [b"?", 5, b"id"]],
        ],
        "asked",
    )
    assert [slots.master(slot) for slot in (0, 99, 100, 200, 201, 300, 16383)] == [
        *[Node("asked", 1)] * 2,
        *[Node("b", 2)] * 2,
        None,
        Node("asked", 4),
        None,
    ]
    assert set(slots.nodes) == {Node("asked", 1), Node("b", 2), Node("c", 3), Node("asked", 4), Node("asked", 5)}
    slots.moved(100, Node("d", 6))
    assert (slots.master(100), slots.master(101)) == (Node("d", 6), Node("b", 2))
    slots.forget()
    assert slots.master(100) is None
    assert len(slots.nodes) == 5
