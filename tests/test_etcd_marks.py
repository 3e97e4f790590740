"""What a holder leaves in etcd beyond the contract: leases, foreign clients, a full server, answers that are lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import etcd_fixtures
from contenders import acquire, request, take, try_once
from distlock.backends.base import SUCCESS, Mark, Refused, Unavailable, Unmarked
from distlock.backends.etcd import EtcdBackend
from distlock.clock import boottime
from etcd_fixtures import etcdctl_lock, mark_of, nothing_left, opened, queue_of, record_of, success_of
from etcd_servers import EtcdMember
from grpc_proxy import GrpcProxy, grpc_proxy
from processes import wait_until

DAY = 86400.0
BY = "alice@ops"


one_server = etcd_fixtures.one_server
server = etcd_fixtures.emptied_server
backend = etcd_fixtures.backend


@pytest.fixture
def proxy(server: EtcdMember) -> Iterator[GrpcProxy]:
    with grpc_proxy(server.place) as one:
        yield one


@pytest.fixture
def through(proxy: GrpcProxy) -> Iterator[EtcdBackend]:
    with opened(f"etcd://127.0.0.1:{proxy.port}") as one:
        yield one


# -- marks -------------------------------------------------------------------------------------------------------------


def test_what_is_left_of_marks(server: EtcdMember, backend: EtcdBackend) -> None:
    """One record that stays, and a lease for each other mark; none for one that was replaced."""
    for _ in range(3):
        grant = take(backend, "n")
        backend.mark(grant, Mark("begun", 0.0, DAY), 5.0)
        backend.release(grant, 5.0, (Mark(SUCCESS, 1.0, DAY), Mark("a b", 1.0, DAY)))
    marks = [mark_of("n", "a%20b"), mark_of("n", "begun")]
    assert server.keys() == sorted([record_of("n"), success_of("n"), *marks])
    assert sorted(server.leases()) == sorted(server.lease_of(key).zfill(16) for key in marks)


def test_the_server_forgets_a_mark_of_a_lock_that_nobody_uses_any_more(
    server: EtcdMember, backend: EtcdBackend
) -> None:
    backend.release(take(backend, "n"), 5.0, (Mark("x", 0.0, 1.0),))
    assert backend.marked("n", "x", 5.0)
    wait_until(lambda: nothing_left(server, record_of("n")), 10)


def test_a_mark_whose_lease_was_begun_anew_is_swept_away(server: EtcdMember, backend: EtcdBackend) -> None:
    """As after an election."""
    lease = server.ctl("lease", "grant", "1000").split()[1]
    for slot, instant in (("over", time.time() - 1), ("good", time.time() + DAY)):
        server.ctl("put", f"--lease={lease}" if slot == "over" else "--lease=0", mark_of("n", slot), _mark(instant))
    assert backend.marked("n", "over", 5.0) is None
    assert backend.marked("n", "good", 5.0)
    backend.release(take(backend, "n"), 5.0, (Mark("x", 0.0, DAY),))
    assert server.keys("/distlock/mark/") == [mark_of("n", "good"), mark_of("n", "x")]
    assert lease not in server.leases()


def _mark(until: float) -> str:
    return f"1:{int(until * 1e6):016d}:{int((time.time() - 60) * 1e6):016d}"


def test_a_mark_of_an_unknown_layout_is_not_taken_for_none(server: EtcdMember, backend: EtcdBackend) -> None:
    for key in (mark_of("n", "x"), success_of("n")):
        server.ctl("put", key, "2:whatever")
    for slot in ("x", SUCCESS):
        with pytest.raises(Unavailable, match="layout") as caught:
            backend.marked("n", slot, 5.0)
        assert caught.value.permanent
    assert backend.inspect("n", 5.0).last_success is None


@pytest.mark.parametrize("lost", ["LeaseGrant", "Txn", "LeaseRevoke", "Range"])
def test_a_lost_answer_of_a_mark(server: EtcdMember, proxy: GrpcProxy, through: EtcdBackend, lost: str) -> None:
    grant = take(through, "n")
    for _ in range(2):  # the second one replaces the first
        proxy.lose[lost] = 1
        through.mark(grant, Mark("x", 0.0, DAY), 5.0)
        assert server.keys("/distlock/mark/") == [mark_of("n", "x")]
    through.release(grant, 5.0)
    left = set(server.leases())
    assert server.lease_of(mark_of("n", "x")).zfill(16) in left
    assert len(left) <= 1 + (lost == "Txn")  # that of the mark that was replaced, in the answer that was lost


@pytest.mark.parametrize("keep_for", [0.0, 60.0])
@pytest.mark.parametrize("lost", ["LeaseGrant", "Txn", "LeaseRevoke"])
def test_a_lost_answer_at_the_release(
    server: EtcdMember, proxy: GrpcProxy, through: EtcdBackend, lost: str, keep_for: float
) -> None:
    """The mark is there, the lock is given back or kept, and no lease is left that nothing is under."""
    grant = take(through, "n")
    proxy.lose[lost] = 1
    try:
        through.release(grant, 5.0, (Mark("x", 0.0, DAY),), keep_for)
    except Unavailable:
        through.release(grant, 5.0, (Mark("x", 0.0, DAY),), keep_for)
    with opened(server.url) as other:
        assert other.marked("n", "x", 5.0)
        state = other.inspect("n", 5.0)
        assert (state.held, state.kept) == (keep_for > 0, keep_for > 0)
    left = len(server.leases())
    assert 1 + (keep_for > 0) <= left <= 1 + (keep_for > 0) + (lost == "LeaseRevoke")


# -- a lock that is kept -----------------------------------------------------------------------------------------------


def test_a_foreign_client_waits_for_a_lock_that_is_kept(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "n")
    with etcdctl_lock(server, "/distlock/lock/n", waits=True) as foreign:
        before = boottime()
        backend.release(grant, 5.0, (), 1.5)
        assert foreign.stdout
        assert foreign.stdout.readline().startswith(queue_of("n"))
        assert 1.5 <= boottime() - before < 5.0


def test_a_lock_that_is_kept_has_the_lease_of_that_alone(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "n")
    with opened(server.url) as other, other.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        backend.release(grant, 5.0)
        grant = acquire(ticket)
        other.release(grant, 5.0, (), 20.2)
        assert len(server.leases()) == 1
        state = backend.inspect("n", 5.0)
        assert state.ttl == 21.0
        assert backend.revoke("n", grant.token, None, BY, 5.0, now=False)
    assert nothing_left(server, record_of("n"))


# -- taking a lease away -----------------------------------------------------------------------------------------------


def test_a_foreign_holder_is_only_removed(server: EtcdMember, backend: EtcdBackend) -> None:
    """It would not be told that it is to end."""
    with etcdctl_lock(server, "/distlock/lock/n"):
        token = backend.inspect("n", 5.0).token
        leases = server.leases()
        with pytest.raises(Refused, match=r"other than distlock.*--now"):
            backend.revoke("n", token, None, BY, 5.0, now=False)
        assert not backend.revoke("n", (token or 0) + 1, None, BY, 5.0, now=True)
        assert backend.inspect("n", 5.0).held
        assert backend.revoke("n", token, None, BY, 5.0, now=True)
        assert server.leases() == leases  # it may be about more than this lock
        assert try_once(backend, "n")


def test_a_waiter_is_no_holder(server: EtcdMember, backend: EtcdBackend) -> None:
    """Not even if it is the first, and is about to take what is free."""
    held = take(backend, "n")
    with backend.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        places = [int(line) for line in _create_revisions(server, queue_of("n"))]
        assert max(places) > (held.token or 0)
        for _ in range(2):
            assert not backend.revoke("n", max(places), None, BY, 5.0, now=True)
            backend.release(held, 5.0)
        acquire(ticket)


def _create_revisions(server: EtcdMember, prefix: str) -> list[str]:
    shown = server.ctl("get", "--prefix", prefix, "--write-out=fields").splitlines()
    return [line.rpartition(" ")[2] for line in shown if line.startswith('"CreateRevision"')]


@pytest.mark.parametrize("now", [False, True])
def test_a_lost_answer_of_taking_it_away(server: EtcdMember, proxy: GrpcProxy, through: EtcdBackend, now: bool) -> None:
    """What was done is not told as nothing."""
    with opened(server.url) as other:
        grant = take(other, "n")
        through.inspect("n", 5.0)
        proxy.lose["Txn"] = 1
        assert through.revoke("n", grant.token, None, BY, 5.0, now=now)
        state = other.inspect("n", 5.0)
        assert (state.held, state.revoked_by) == (not now, None if now else BY)


# -- fence registers ---------------------------------------------------------------------------------------------------


def test_a_lost_answer_of_a_register(server: EtcdMember, proxy: GrpcProxy, through: EtcdBackend) -> None:
    through.inspect("r", 5.0)  # over a new connection nothing is asked again
    for token in (7, 9):
        proxy.lose["Txn"] = 1
        assert through.advance_fence("r/1", 2, token, 5.0) == token
    assert server.value("/distlock/fence/r%2F1/2") == "1:9"


def test_a_register_of_an_unknown_layout_is_left_alone(server: EtcdMember, backend: EtcdBackend) -> None:
    server.ctl("put", "/distlock/fence/r/0", "2:7")
    for ask in (lambda: backend.advance_fence("r", 0, 9, 5.0), lambda: backend.reset_fence("r", 0, 5.0)):
        with pytest.raises(Unavailable, match="layout"):
            ask()
    assert server.value("/distlock/fence/r/0") == "2:7"


# -- a full server -----------------------------------------------------------------------------------------------------


@pytest.fixture
def full(tmp_path: Path) -> Iterator[EtcdMember]:
    with EtcdMember(tmp_path / "full", options=("--quota-backend-bytes", str(1 << 20))).running() as one:
        yield one


def fill(server: EtcdMember) -> None:
    for number in range(40):
        server.ctl("put", f"junk{number}", "x" * 100_000, check=False)
    assert "NOSPACE" in server.ctl("alarm", "list")


def test_a_full_server_keeps_no_lock(full: EtcdMember) -> None:
    """A release needs no room; a mark that does is told of."""
    with opened(full.url) as backend:
        held = [take(backend, name, ttl=60.0) for name in "abcdef"]
        fill(full)
        started = Mark("x", 0.0, DAY)
        success = Mark(SUCCESS, 1.0, DAY)
        backend.renew(held[0], 5.0)
        with pytest.raises(Unavailable, match="full"):
            backend.mark(held[0], started, 5.0)
        backend.release(held[0], 5.0)
        backend.release(held[1], 5.0, (success,))
        with pytest.raises(Unmarked, match="full"):
            backend.release(held[2], 5.0, (success, started))
        assert backend.revoke("d", held[3].token, None, BY, 5.0, now=True)
        with pytest.raises(Unavailable, match="full"):
            backend.revoke("e", held[4].token, None, BY, 5.0, now=False)
        with pytest.raises(Unavailable, match="full"):
            backend.release(held[5], 5.0, (), 60.0)  # it is had by nobody until its TTL is over
        states = {state.name: state.held for state in backend.locks(5.0)}
        assert states == {"a": False, "b": False, "c": False, "d": False, "e": True, "f": True}
