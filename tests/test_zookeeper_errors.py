"""Servers that are not there, hang, are something else, or go away: an error in time, and the right one."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zookeeper_fixtures
from contenders import acquire, never, request, take, try_once
from distlock.backends.base import SUCCESS, DistlockError, LeaseLost, Mark, Refused, Unavailable
from distlock.backends.zookeeper import ZooKeeperBackend
from distlock.backends.zookeeper_errors import of_code, translated
from distlock.clock import boottime
from processes import wait_until
from proxy import Proxy
from servers import HOST, free_port
from zookeeper_fixtures import folder, opened, queue
from zookeeper_servers import ZooKeeperServer, kazoo

server = zookeeper_fixtures.server
zk = zookeeper_fixtures.zk
backend = zookeeper_fixtures.backend


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[Proxy]:
    with Proxy(server.port) as one:
        yield one


@pytest.fixture
def cut(proxy: Proxy) -> Iterator[ZooKeeperBackend]:
    """Through the proxy."""
    with opened(f"zookeeper://{HOST}:{proxy.port}") as one:
        yield one


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@contextmanager
def saying(answer: bytes) -> Iterator[int]:
    """The port of something that says this to everybody and hangs up, or nothing at all and waits."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server((HOST, 0)))
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    one, _ = listener.accept()
                except OSError:
                    return
                kept.append(one)
                if answer:
                    one.recv(4096)
                    one.sendall(answer)
                    one.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)
        for one in kept:
            one.close()


# --- something else, or nothing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"-ERR unknown command\r\n",
        b"\x00\x00\x00\x04oops",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x00",
    ],
)
def test_what_is_no_zookeeper(answer: bytes) -> None:
    with saying(answer) as port, opened(f"zookeeper://{HOST}:{port}") as backend:
        with pytest.raises(Unavailable, match=f"{HOST}:{port} does not speak the ZooKeeper protocol") as error:
            try_once(backend, "p")
        assert error.value.permanent


@pytest.mark.parametrize("ttl", [3.0, 30.0])
def test_one_that_says_nothing_is_not_waited_for(ttl: float) -> None:
    with saying(b"") as port, opened(f"zookeeper://{HOST}:{port}") as backend:
        start = boottime()
        with pytest.raises(Unavailable, match="does not answer"):
            try_once(backend, "p", ttl)
        assert boottime() - start < min(3.0, ttl / 3) + 1.0
        start = boottime()
        with pytest.raises(Unavailable, match="does not answer"):
            backend.inspect("p", 0.5)
        assert boottime() - start < 1.0


def test_an_answer_to_somebody_else_is_a_lost_connection() -> None:
    """Where two processes use one session, as a lease is handed on, a server may answer what the other has asked."""
    welcome = struct.pack("!iiqi16s?", 0, 10000, 7, 16, bytes(16), False)
    stray = struct.pack("!iqi", 1, 1, 0)
    frames = b"".join(struct.pack("!i", len(one)) + one for one in (welcome, stray))
    with saying(frames) as port, opened(f"zookeeper://{HOST}:{port}") as backend:
        with pytest.raises(Unavailable, match="lost the connection") as error:
            try_once(backend, "p", 9.0)
        assert not error.value.permanent


def test_nobody_there() -> None:
    with opened(f"zookeeper://{HOST}:{free_port()}") as backend:
        with pytest.raises(Unavailable, match="is not reached: Connection refused") as error:
            try_once(backend, "p")
        assert not error.value.permanent


def test_a_name_that_does_not_resolve() -> None:
    with opened("zookeeper://nowhere.invalid") as backend, pytest.raises(Unavailable, match=r"is not resolved"):
        try_once(backend, "p")


def test_others_of_the_ensemble_do(server: ZooKeeperServer, name: str) -> None:
    """One is not there, one hangs, one is something else, one does."""
    with saying(b"") as silent, saying(b"HTTP/1.1 400\r\n\r\n") as other:
        places = f"{HOST}:{free_port()},{HOST}:{silent},{HOST}:{other},nowhere.invalid,{server.place}"
        for _ in range(4):  # the order is random
            with opened(f"zookeeper://{places}") as backend:
                grant = take(backend, name, ttl=30.0)
                start = boottime()
                backend.renew(grant, 5.0)  # asks the one that has answered first
                assert boottime() - start < 1.0
                backend.release(grant, 5.0)


# --- connections that drop, answers that are lost ---------------------------------------------------------------------


def test_a_place_outlives_its_connection(
    cut: ZooKeeperBackend, backend: ZooKeeperBackend, zk: KazooClient, proxy: Proxy, name: str
) -> None:
    held = take(backend, name)
    with cut.enqueue(request(name, 30.0)) as ticket, backend.enqueue(request(name, 30.0)) as later, never() as cancel:
        assert ticket.poll() is None
        assert later.poll() is None
        nodes = queue(zk, name)
        for _ in range(3):
            proxy.refuse()
            ticket.wait(5.0, cancel)
            proxy.let_pass()
            assert ticket.poll() is None
            assert queue(zk, name) == nodes
        backend.release(held, 5.0)
        assert later.poll() is None
        cut.release(acquire(ticket), 5.0)


def test_a_place_is_kept_over_an_outage(
    cut: ZooKeeperBackend, backend: ZooKeeperBackend, zk: KazooClient, proxy: Proxy, name: str
) -> None:
    """Whoever is told Unavailable and queues again has the same place."""
    take(backend, name)
    asked = request(name, 30.0)
    with cut.enqueue(asked) as ticket:
        assert ticket.poll() is None
        nodes = queue(zk, name)
        proxy.refuse()
        with never() as cancel:
            ticket.wait(5.0, cancel)
        with pytest.raises(Unavailable):
            ticket.poll()
    proxy.let_pass()
    with cut.enqueue(asked) as ticket:
        assert ticket.poll() is None
        assert queue(zk, name) == nodes
    assert len(queue(zk, name)) == 1


def test_a_node_whose_making_was_not_answered_is_found_again(
    cut: ZooKeeperBackend, zk: KazooClient, proxy: Proxy, name: str
) -> None:
    """Else it would be queued behind itself."""
    asked = request(name, 9.0)
    zk.ensure_path(folder(name))
    proxy.delay_answers(1.0)

    def lose_the_answer() -> None:
        wait_until(lambda: queue(zk, name))
        proxy.black_hole()

    thread = threading.Thread(target=lose_the_answer)
    thread.start()
    with cut.enqueue(asked) as ticket, pytest.raises(Unavailable, match="does not answer"):
        ticket.poll()
    thread.join()
    (node,) = queue(zk, name)
    proxy.let_pass()
    with cut.enqueue(asked) as ticket:
        grant = acquire(ticket, 8.0)
    assert queue(zk, name) == [node]
    cut.release(grant, 5.0)
    assert queue(zk, name) == []


def test_who_cannot_say_goodbye_does_not_wait_for_it(
    cut: ZooKeeperBackend, backend: ZooKeeperBackend, proxy: Proxy, name: str
) -> None:
    take(backend, name)
    ticket = cut.enqueue(request(name, 30.0))
    assert ticket.poll() is None
    proxy.black_hole()
    start = boottime()
    ticket.close()
    cut.close()
    assert boottime() - start < 1.0


def test_an_ended_session_is_a_lost_lease(
    backend: ZooKeeperBackend, cut: ZooKeeperBackend, proxy: Proxy, name: str
) -> None:
    grant = take(cut, name, ttl=1.0)
    proxy.black_hole()
    wait_until(lambda: not backend.inspect(name, 5.0).held)
    proxy.let_pass()
    later = take(backend, name)
    with pytest.raises(LeaseLost, match="its session has ended"):
        cut.renew(grant, 5.0)
    cut.release(grant, 5.0)
    backend.renew(later, 5.0)


@pytest.mark.parametrize("marks", [(), (Mark(SUCCESS, 1.0, 60.0),)])
def test_a_lock_is_given_back_over_a_connection_that_was_dropped(
    cut: ZooKeeperBackend, backend: ZooKeeperBackend, proxy: Proxy, name: str, marks: tuple[Mark, ...]
) -> None:
    grant = take(cut, name)
    for outage in range(2):
        proxy.refuse()
        if outage == 1:
            with pytest.raises(Unavailable):
                cut.release(grant, 0.5, marks)
        proxy.let_pass()
    cut.release(grant, 5.0, marks)
    state = backend.inspect(name, 5.0)
    assert not state.held
    assert (state.last_success is None) == (not marks)
    assert try_once(backend, name)


# --- the alarm --------------------------------------------------------------------------------------------------------


def rung(backend: ZooKeeperBackend, grant: object, seconds: float) -> bool:
    import select

    until = boottime() + seconds
    while boottime() < until:
        descriptor = backend.alarm(grant)  # type: ignore[arg-type]
        if descriptor is not None and select.select([descriptor], [], [], 0.05)[0]:
            return True
        time.sleep(0.005)
    return False


@pytest.mark.parametrize("after_renewal", [False, True])
def test_an_alarm_when_the_node_is_removed(
    backend: ZooKeeperBackend, zk: KazooClient, name: str, after_renewal: bool
) -> None:
    grant = take(backend, name)
    if after_renewal:
        grant = backend.renew(grant, 5.0)
    assert not rung(backend, grant, 0.3)
    zk.delete(queue(zk, name)[0])
    assert rung(backend, grant, 1.0)
    assert rung(backend, grant, 1.0)  # until a renewal
    with pytest.raises(LeaseLost):
        backend.renew(grant, 5.0)
    assert backend.alarm(grant) is None


def test_an_alarm_when_the_connection_drops_and_only_one(cut: ZooKeeperBackend, proxy: Proxy, name: str) -> None:
    grant = take(cut, name)
    assert not rung(cut, grant, 0.2)
    proxy.refuse()
    assert rung(cut, grant, 1.0)
    with pytest.raises(Unavailable):
        cut.renew(grant, 0.5)
    rung(cut, grant, 0.1)
    assert not rung(cut, grant, 0.3)  # tried again by the schedule
    proxy.let_pass()
    cut.renew(grant, 5.0)
    assert not rung(cut, grant, 0.2)


def test_news_of_a_waiter_is_no_alarm(backend: ZooKeeperBackend, zk: KazooClient, name: str) -> None:
    grant = take(backend, name)
    zk.create(f"{folder(name)}/x__lock__", ephemeral=True, sequence=True)
    with opened(backend_url(backend)) as other:
        assert try_once(other, name) is None
    assert not rung(backend, grant, 0.3)


def backend_url(backend: ZooKeeperBackend) -> str:
    return f"zookeeper://{backend.address}"


# --- what servers grant -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "granted"), [(90.0, 60.0), (7.0, 7.0), (1.23456, 1.23456)])
def test_the_servers_limits_are_the_ttl(backend: ZooKeeperBackend, name: str, asked: float, granted: float) -> None:
    before = boottime()
    grant = take(backend, name, ttl=asked)
    assert grant.ttl == granted
    assert grant.valid_from >= before
    state = backend.inspect(name, 5.0)
    assert state.ttl == granted
    assert 0 < (state.expires_in or 0) <= granted


ASKS: list[Callable[[ZooKeeperBackend], object]] = [
    lambda backend: try_once(backend, "p", 3.0),
    lambda backend: backend.inspect("p", 1.0),
    lambda backend: list(backend.locks(1.0)),
]


@pytest.mark.parametrize("ask", ASKS)
def test_a_frozen_server_is_an_error_in_time(tmp_path: Path, ask: Callable[[ZooKeeperBackend], object]) -> None:
    with ZooKeeperServer(tmp_path).running() as server, opened(server.url) as backend:
        backend.inspect("p", 5.0)
        server.freeze()
        start = boottime()
        with pytest.raises(Unavailable, match="does not answer"):
            ask(backend)
        assert boottime() - start < 2.0
        server.thaw()


def test_a_stall_drops_no_waiter(tmp_path: Path) -> None:
    """After it all of them seem to have missed their beats."""
    with ZooKeeperServer(tmp_path).running() as server, kazoo(server) as zk, ExitStack() as stack:
        backends = [stack.enter_context(opened(server.url)) for _ in range(4)]
        take(backends[0], "p", ttl=60.0)
        tickets = [stack.enter_context(backend.enqueue(request("p", 60.0))) for backend in backends[1:]]
        for ticket in tickets:
            assert ticket.poll() is None
        nodes = queue(zk, "p")

        def beat_for(seconds: float) -> None:
            until = boottime() + seconds
            while boottime() < until:
                for ticket in reversed(tickets):  # who is behind looks first
                    try:
                        assert ticket.poll() is None
                    except Unavailable:
                        continue
                time.sleep(0.05)

        beat_for(2.0)
        server.freeze()
        silent_since = boottime()
        wait_until(lambda: boottime() > silent_since + 5.5, what="longer than a waiter may be silent")
        server.thaw()
        beat_for(4.0)
        assert queue(zk, "p") == nodes


# --- what servers answer ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "permanent", "says"),
    [
        (-4, Unavailable, False, "lost the connection"),
        (-122, Unavailable, False, "took too long"),
        (-127, Unavailable, False, "overloaded"),
        (-6, Unavailable, True, "3.5 is the oldest"),
        (-120, Unavailable, True, "localSessionsUpgradingEnabled"),
        (-125, Unavailable, True, "quota"),
        (-102, Refused, None, "does not allow it"),
        (-115, Refused, None, "refuses the user or password"),
        (-124, Refused, None, "SASL"),
        (-3, Unavailable, False, "answers with error -3"),
        (-999, Unavailable, False, "answers with error -999"),  # of a later server
    ],
)
def test_answers_that_are_errors(code: int, kind: type[DistlockError], permanent: bool | None, says: str) -> None:
    error = translated(of_code(code), "zk1:2181")
    assert type(error) is kind
    assert getattr(error, "permanent", None) is permanent
    assert str(error).startswith("zk1:2181 ")
    assert says in str(error)
