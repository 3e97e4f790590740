"""Redlock beyond the contract: what a majority decides, what a few servers cannot spoil, what it costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import redlock_fixtures
from contenders import Contender, acquire, client, environment, never, request, take, try_once
from distlock.backends import open_backend
from distlock.backends.base import Backend, ConfigurationError, LeaseLost, LockState, Refused, Unavailable
from distlock.backends.redlock_view import merged
from distlock.clock import boottime
from processes import Lab, wait_until
from redis_fixtures import keys, token_key
from redis_groups import redlock_url
from redlock_fixtures import having
from servers import HOST, RedisServer, free_port

nodes = redlock_fixtures.nodes
open_more = redlock_fixtures.open_more
backend = redlock_fixtures.backend
other = redlock_fixtures.other


# -- a majority --------------------------------------------------------------------------------------------------------


def test_a_lease_is_at_all_servers_and_longer_there(nodes: list[RedisServer], backend: Backend) -> None:
    """By the allowance for drift: 1 % and 2 ms."""
    grant = take(backend, "n", ttl=20.0, owner="me")
    sent = boottime() - grant.valid_from
    assert having(nodes) == [b"me"] * 3
    for node in nodes:
        assert 20_202 - sent * 1000 - 200 < node.command("PTTL", "lock:n") <= 20_202
    renewed = backend.renew(grant, 5.0)
    assert min(node.command("PTTL", "lock:n") for node in nodes) > 20_000
    assert renewed.valid_from > grant.valid_from
    assert renewed.token is None
    expires_in = backend.inspect("n", 5.0).expires_in
    assert expires_in is not None
    assert 19.5 < expires_in <= 20.0


@pytest.mark.parametrize("how", ["dead", "silent"])
@pytest.mark.parametrize("which", [0, 2])
def test_a_few_that_do_not_answer_are_no_obstacle(
    nodes: list[RedisServer], backend: Backend, other: Backend, how: str, which: int
) -> None:
    if how == "dead":
        nodes[which].kill()
    else:
        nodes[which].freeze()
    start = boottime()
    grant = take(backend, "n")
    assert try_once(other, "n") is None
    grant = backend.renew(grant, 5.0)
    assert backend.inspect("n", 5.0).held
    with other.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        backend.release(grant, 5.0)
        grant = acquire(ticket, 1.5)
    other.release(grant, 5.0)
    assert not backend.inspect("n", 5.0).held
    assert boottime() - start < 4.0
    nodes[which].thaw() if how == "silent" else None


@pytest.mark.parametrize("how", ["dead", "silent"])
def test_most_that_do_not_answer_are(nodes: list[RedisServer], backend: Backend, other: Backend, how: str) -> None:
    grant = take(backend, "n", ttl=6.0)
    for node in nodes[:2]:
        if how == "dead":
            node.kill()
        else:
            node.freeze()
    words = r"only 1 of 3 servers of the redlock can be counted on, 2 are needed: .* (is not reached|not answer|closed)"
    calls: list[Callable[[], object]] = [
        lambda: backend.renew(grant, 0.5),
        lambda: backend.release(grant, 0.5),
        lambda: backend.inspect("n", 0.5),
        lambda: try_once(other, "n", ttl=3.0),
    ]
    for call in calls:
        start = boottime()
        with pytest.raises(Unavailable, match=words) as caught:
            call()
        assert boottime() - start < 2.0
        assert not caught.value.permanent
    # Nothing of a try in vain stays at the one that lives.
    wait_until(lambda: nodes[2].command("EXISTS", "lock:n", "distlock:{lock:n}:queue") == 0)
    for node in nodes[:2] if how == "silent" else []:
        node.thaw()


def test_what_only_a_few_keep_is_not_held(nodes: list[RedisServer], backend: Backend) -> None:
    """A foreign lock at one of three, and one at two of them."""
    nodes[0].command("SET", "lock:n", "x", "PX", 60000)
    assert not backend.inspect("n", 5.0).held
    grant = take(backend, "n", owner="me")
    assert having(nodes) == [b"x", b"me", b"me"]
    backend.release(grant, 5.0)
    assert having(nodes) == [b"x", None, None]
    nodes[1].command("SET", "lock:n", "x", "PX", 60000)
    assert try_once(backend, "n") is None
    state = backend.inspect("n", 5.0)
    assert (state.held, state.holder) == (True, None)
    assert having(nodes) == [b"x", b"x", None]


def test_a_lease_that_most_have_lost(nodes: list[RedisServer], backend: Backend) -> None:
    grant = take(backend, "n")
    nodes[0].command("DEL", "lock:n")
    grant = backend.renew(grant, 5.0)
    wait_until(lambda: None not in having(nodes))
    for node in nodes[:2]:
        node.command("SET", "lock:n", "thief", "PX", 60000)
    with pytest.raises(LeaseLost, match="at most of its servers it went to somebody else"):
        backend.renew(grant, 5.0)
    backend.release(grant, 5.0)
    assert having(nodes) == [b"thief", b"thief", None]


def test_a_lease_that_all_have_forgotten_is_not_taken_again(nodes: list[RedisServer], backend: Backend) -> None:
    grant = take(backend, "n")
    for node in nodes:
        node.command("FLUSHALL")
    with pytest.raises(LeaseLost):
        backend.renew(grant, 5.0)
    assert having(nodes) == [None] * 3


def test_servers_that_restart_without_their_data_one_by_one(
    nodes: list[RedisServer], backend: Backend, other: Backend
) -> None:
    """A renewal gives the lease to those again that forgot it, waiters or not: nobody else gets in, ever."""
    grant = take(backend, "n")
    with other.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        for node in nodes:
            node.restart()
            assert ticket.poll() is None
            grant = backend.renew(grant, 5.0)
            owner = grant.owner.encode()
            wait_until(lambda: having(nodes) == [owner] * 3)  # noqa: B023
            assert ticket.poll() is None
        backend.release(grant, 5.0)
        assert acquire(ticket)


def test_a_password_that_one_of_them_does_not_take(nodes: list[RedisServer], backend: Backend) -> None:
    nodes[0].command("CONFIG", "SET", "requirepass", "x")
    assert take(backend, "n")
    nodes[1].command("CONFIG", "SET", "requirepass", "x")
    backend.close()
    with pytest.raises(
        Refused, match=r"only 1 of 3 servers of the redlock can be counted on, 2 are needed: .* wants a password"
    ):
        try_once(backend, "n")


def test_a_layout_that_nobody_knows(nodes: list[RedisServer], backend: Backend) -> None:
    for node in nodes[:2]:
        node.command("SET", token_key("n"), "9:5")
    with pytest.raises(Unavailable, match="layout") as caught:
        try_once(backend, "n")
    assert caught.value.permanent


# -- many at once ------------------------------------------------------------------------------------------------------


def test_a_free_lock_that_many_want_at_once(nodes: list[RedisServer]) -> None:
    """None before the other in any order: each of them gets it, one at a time, and soon."""
    url = redlock_url(nodes)
    with ExitStack() as stack:
        contenders: list[Contender] = []
        start = threading.Barrier(6)

        def come() -> None:
            start.wait()
            contenders.append(Contender(url, "n"))

        threads = [threading.Thread(target=come) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for contender in contenders:
            stack.enter_context(contender)
        backend = open_backend(url, environment())
        began = boottime()
        served: set[str] = set()
        while len(served) < len(contenders):
            holder = wait_until(lambda: backend.inspect("n", 5.0).holder)
            now = next(one for one in contenders if holder and one.owner == holder.owner)
            assert now.owner not in served
            served.add(now.owner)
            if b"waiting" in now._unread:
                now.expect("waiting")
            now.granted()
            now.tell("release")
            now.expect("released")
        assert boottime() - began < 10.0
        backend.close()


def test_a_waiter_sends_each_server_at_most_one_request_a_second(
    nodes: list[RedisServer], backend: Backend, other: Backend
) -> None:
    take(backend, "n", ttl=60.0)
    seconds, until = 6.0, boottime() + 100

    def wait() -> None:
        with other.enqueue(request("n", 30.0)) as ticket, never() as cancel:
            while boottime() < until:
                assert ticket.poll() is None
                ticket.wait(until - boottime(), cancel)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: len(backend.inspect("n", 5.0).waiters) == 1)
    before = [node.statistics() for node in nodes]
    time.sleep(seconds)
    after = [node.statistics() for node in nodes]
    until = 0.0
    thread.join()
    for old, new in zip(before, after, strict=True):
        sent = sum(new[name] - old.get(name, 0) for name in new if name[8:] in ("evalsha", "eval", "subscribe"))
        assert 0.6 < sent / seconds <= 1.0


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path, nodes: list[RedisServer]) -> Iterator[Lab]:
    made = Lab(tmp_path, redlock_url(nodes))
    yield made
    made.close()


def test_a_run_has_no_token_and_leaves_only_a_record(lab: Lab, nodes: list[RedisServer]) -> None:
    """Nor that of a run around it."""
    outer = {"DISTLOCK_FENCING_TOKEN": "5"}
    done = lab.run("job", "--", "sh", "-c", "env; exit 9", environment=outer)
    assert (done.returncode, done.stderr) == (9, b"")
    assert b"DISTLOCK_NAME=job\n" in done.stdout
    assert b"DISTLOCK_FENCING_TOKEN" not in done.stdout
    for node in nodes:
        assert keys(node) == {token_key("job"): -1}
        wait_until(lambda: node.command("INFO", "clients")["connected_clients"] == 1)  # noqa: B023


@pytest.mark.parametrize("options", [["-n"], ["-w", "0.3"]])
def test_a_conflict_leaves_nothing(lab: Lab, nodes: list[RedisServer], options: list[str]) -> None:
    for node in nodes:
        node.command("SET", "lock:job", "x", "PX", 60000)
    done = lab.run(*options, "job", "--", "true")
    assert done.returncode == 75
    for node in nodes:
        wait_until(lambda: set(keys(node)) == {"lock:job"})  # noqa: B023


def test_a_class_that_it_has_not(lab: Lab) -> None:
    done = lab.run("--require", "correctness", "job", "--", "true")
    assert done.returncode == 77
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redlock://h,i", "three servers at least"),
        ("redlock://h", "three servers at least"),
        ("redlock://h,i,h:6379", "h:6379 stands in it twice"),
        ("redlock://h,i,j/x", "the database is a number"),
        ("redlock://h,i,j?ca=/dev/null", "unknown query key 'ca'"),
        ("redlocks://h,i,j?ca=/none", "ca= names no file"),
    ],
)
def test_urls_that_mean_nothing(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_backend(url, environment())


def test_nothing_listens() -> None:
    ports = [free_port() for _ in range(3)]
    backend = open_backend("redlock://" + ",".join(f"{HOST}:{port}" for port in ports), environment())
    with pytest.raises(
        Unavailable, match=f"only 0 of 3 servers .*: {HOST}:{ports[0]} is not reached: Connection refused"
    ):
        try_once(backend, "n")
    backend.close()


# -- what the servers say, put together --------------------------------------------------------------------------------


def held_by(owner: str | None, expires_in: float | None) -> LockState:
    holder = client(owner) if owner else None
    return LockState("n", True, 5, holder, 10.0 if owner else None, expires_in, ())


FREE = LockState("n", False, 5, None, None, None, ())


@pytest.mark.parametrize(
    ("states", "held", "holder", "expires_in"),
    [
        ([FREE, FREE, FREE], False, None, None),
        ([held_by("a", 9.0), FREE, FREE], False, None, None),
        ([held_by("a", 9.0), held_by("a", 8.0), FREE], True, "a", 8.0 - 0.102),
        ([held_by("a", 9.0), held_by("a", 8.0), held_by("a", 7.0)], True, "a", 8.0 - 0.102),
        ([held_by("a", 9.0), held_by("a", 8.0), held_by("b", 1.0)], True, "a", 8.0 - 0.102),
        ([held_by("a", 9.0), held_by("b", 8.0), FREE], True, None, 8.0),
        ([held_by(None, None), held_by(None, 8.0), FREE], True, None, 8.0),
        ([held_by(None, None), held_by(None, None), FREE], True, None, None),
        ([held_by("a", 9.0), held_by("a", 8.0)], True, "a", 8.0 - 0.102),
        ([], False, None, None),
    ],
)
def test_merging(states: list[LockState], held: bool, holder: str | None, expires_in: float | None) -> None:
    found = merged("n", states, 2)
    assert (found.held, found.holder.owner if found.holder else None) == (held, holder)
    assert found.token is None
    assert found.expires_in == (None if expires_in is None else pytest.approx(expires_in))
