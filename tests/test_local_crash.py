"""Local locks: a holder that was killed. Its lock is free at once if all of it is provably gone, else after its TTL."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import local_fixtures
from contenders import Contender, acquire, client, directory, request, take, try_once
from distlock.backends.base import Grant, Request
from distlock.backends.local import LocalBackend
from distlock.backends.local_boot import Host
from distlock.clock import boottime

AT_ONCE = 0.6
USER = ("--identity", "4321", "4321", "5000")


url = local_fixtures.url
backend = local_fixtures.backend


@pytest.fixture
def shared() -> Iterator[str]:
    """The URL of a directory of group 5000."""
    with directory(0o2770, gid=5000) as made:
        yield f"local://{made}"


@contextmanager
def survivor(run_ids: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], env={"DISTLOCK_RUN": run_ids, "PATH": os.environ["PATH"]})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def orphan(backend: LocalBackend, name: str, pid: int, ttl: float = 60.0, owner: str | None = None) -> Grant:
    """A grant whose renewer is gone, while the supervisor ``pid`` may live."""
    renewer = LocalBackend(lambda: backend.directory, boottime)
    with renewer.enqueue(Request(name, ttl, client(owner, pid=pid))) as ticket:
        grant = acquire(ticket)
    renewer.close()
    return grant


def test_a_killed_holder_frees_the_lock_at_once(url: str, backend: LocalBackend) -> None:
    with Contender(url, "n", ttl=60.0) as holder, Contender(url, "n") as waiter:
        token, _ = holder.granted()
        waiter.expect("waiting")
        before = boottime()
        holder.kill()
        after_token, at = waiter.granted()
        assert at - before < AT_ONCE
        assert after_token > token
        assert backend.inspect("n", 5.0).waiters == ()


def test_a_single_try_gets_the_lock_of_a_killed_holder(url: str, backend: LocalBackend) -> None:
    with Contender(url, "n", ttl=60.0) as holder:
        holder.granted()
        assert backend.inspect("n", 5.0).held
        holder.kill()
        assert not backend.inspect("n", 5.0).held
        assert try_once(backend, "n")


def test_a_survivor_of_the_tree_keeps_the_lock(url: str, backend: LocalBackend) -> None:
    with Contender(url, "n", ttl=60.0) as holder, survivor(f"outer:{holder.owner}:inner") as left:
        holder.granted()
        with backend.enqueue(request("n", 30.0)) as ticket:
            assert ticket.poll() is None
            holder.kill()
            with pytest.raises(AssertionError):
                acquire(ticket, 0.5)
            assert backend.inspect("n", 5.0).held
            before = boottime()
            left.kill()
            left.wait()
            acquire(ticket)
            assert boottime() - before < AT_ONCE


def test_a_survivor_keeps_the_lock_no_longer_than_the_ttl(url: str, backend: LocalBackend) -> None:
    with Contender(url, "n", "--no-renewals", ttl=2.0) as holder, survivor(holder.owner):
        _, granted = holder.granted()
        holder.kill()
        with backend.enqueue(request("n", 30.0)) as ticket:
            acquire(ticket)
        assert 1.9 < boottime() - granted < 3.0


def test_other_runs_are_no_survivors(url: str, backend: LocalBackend) -> None:
    with Contender(url, "n", ttl=60.0) as holder, survivor(f"{holder.owner}0:0{holder.owner}:x"):
        holder.granted()
        holder.kill()
        assert try_once(backend, "n")


def test_a_dead_renewer_alone_frees_nothing(backend: LocalBackend) -> None:
    with survivor("") as supervisor:
        orphan(backend, "n", supervisor.pid)
        with backend.enqueue(request("n", 30.0)) as ticket:
            with pytest.raises(AssertionError):
                acquire(ticket, 0.5)
            before = boottime()
            supervisor.kill()  # and not waited for: a zombie is gone too
            acquire(ticket)
            assert boottime() - before < AT_ONCE


def test_a_pid_that_was_given_anew_is_not_the_supervisor(backend: LocalBackend, tmp_path: Path) -> None:
    orphan(backend, "n", os.getpid())
    assert try_once(backend, "n") is None
    (path,) = (tmp_path / "locks").glob("*.lock/lock.db")
    database = sqlite3.connect(path)
    with database:
        database.execute("UPDATE lock SET started = started - 1")
    database.close()
    assert try_once(backend, "n")


@pytest.mark.parametrize("unreadable", ["stat", "environ"])
def test_what_cannot_be_read_does_not_pass_for_dead(
    url: str, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    """As when no descriptor is left. An error that says "no such process" is the only proof."""
    real = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.match(f"/proc/*/{unreadable}"):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path)

    with Contender(url, "n", ttl=60.0) as holder:
        holder.granted()
        holder.kill()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", failing)
            assert backend.inspect("n", 5.0).held
            assert try_once(backend, "n") is None
        assert try_once(backend, "n")


def test_without_a_start_time_there_is_no_proof(backend: LocalBackend) -> None:
    with survivor("") as supervisor:
        pass
    orphan(backend, "n", supervisor.pid, ttl=1.0)  # it was gone before we looked
    assert try_once(backend, "n") is None
    take(backend, "n", seconds=2.0)


@pytest.mark.parametrize(
    "other", [{"namespace": "pid:[1]"}, {"namespace": ""}, {"boot": "another"}], ids=["namespace", "no-proc", "boot"]
)
def test_who_cannot_see_the_holder_has_no_proof(url: str, backend: LocalBackend, other: dict[str, Any]) -> None:
    elsewhere = LocalBackend(lambda: backend.directory, boottime, Host.read()._replace(contained=True, **other))
    with Contender(url, "n", ttl=60.0) as holder:
        holder.granted()
        holder.kill()
        assert elsewhere.inspect("n", 5.0).held
        assert try_once(elsewhere, "n") is None
        assert try_once(backend, "n")


def test_another_uid_has_no_proof(shared: str) -> None:
    """A user does not see root's processes, so it waits for the TTL."""
    with Contender(shared, "n", ttl=3.0) as holder, Contender(shared, "n", *USER) as waiter:
        _, granted = holder.granted()
        waiter.expect("waiting")
        holder.kill()
        _, at = waiter.granted()
        assert 2.5 < at - granted < 6.0


def test_a_process_that_hides_may_be_a_survivor(shared: str) -> None:
    """One that its own user may not look into: ssh-agent is such a one."""
    with (
        Contender(shared, "n", *USER, ttl=60.0) as holder,
        Contender(shared, "n", *USER) as waiter,
    ):
        holder.granted()
        waiter.expect("waiting")
        with Contender(shared, "elsewhere", *USER, "--hide") as hiding:
            hiding.granted()
            holder.kill()
            with pytest.raises(AssertionError, match="no 'granted' within"):
                waiter.granted(0.5)
            before = boottime()
            hiding.kill()
            assert waiter.granted()[1] - before < AT_ONCE


def test_a_proc_that_hides_processes_proves_nothing(shared: str) -> None:
    mount = 'mount -t proc -o hidepid=2 none /proc && exec "$@"'
    with (
        Contender(shared, "n", *USER, ttl=3.0) as holder,
        Contender(shared, "n", *USER, prefix=["unshare", "--mount", "sh", "-c", mount, "sh"]) as waiter,
    ):
        _, granted = holder.granted()
        waiter.expect("waiting")
        holder.kill()
        assert 2.5 < waiter.granted()[1] - granted < 6.0


def test_a_process_that_hides_but_is_older_is_no_survivor(shared: str) -> None:
    with (
        Contender(shared, "elsewhere", *USER, "--hide"),
        Contender(shared, "n", *USER, ttl=60.0) as holder,
        Contender(shared, "n", *USER) as waiter,
    ):
        holder.granted()
        waiter.expect("waiting")
        before = boottime()
        holder.kill()
        assert waiter.granted()[1] - before < AT_ONCE


def test_a_frozen_holder_is_taken_over_after_its_ttl_and_knows_it_then(url: str) -> None:
    with Contender(url, "n", ttl=1.5) as holder, Contender(url, "n") as waiter:
        token, _ = holder.granted()
        waiter.expect("waiting")
        holder.signal(signal.SIGSTOP)
        stopped = boottime()
        after_token, at = waiter.granted()
        assert 0.9 < at - stopped < 2.5
        assert after_token > token
        holder.signal(signal.SIGCONT)
        reason, _ = holder.expect("lost")
        assert "somebody else" in reason
