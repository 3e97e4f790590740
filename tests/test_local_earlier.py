"""Locks of the first layout, one file a lock: had by nobody, taken over; had by somebody, waited for."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
import struct
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from contenders import acquire, environment, request, take, try_once
from distlock.backends.base import Unavailable
from distlock.backends.local import LocalBackend
from distlock.backends.local_boot import Host
from distlock.backends.local_crash import started
from distlock.clock import boottime
from processes import DISTLOCK, Lab

SCHEMA = (Path(__file__).parent / "local_layout_1.sql").read_text()
FUTURE = int((time.time() + 86400 * 365) * 1e6)
"""A token of a host whose clock was ahead: the next one has to be above it all the same."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "locks"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def backend(folder: Path) -> Iterator[LocalBackend]:
    opened = LocalBackend.from_url(f"local://{folder}", environment())
    yield opened
    opened.close()


class Earlier:
    """A lock as that distlock left it, and what a process of it can do: hold the lock, wait for it, and end."""

    def __init__(self, folder: Path, name: str = "n", token: int = FUTURE) -> None:
        self.path = folder / (hashlib.sha256(name.encode()).hexdigest() + ".lock")
        with self.sql() as sql:
            sql.execute("PRAGMA journal_mode = PERSIST")
            sql.executescript(SCHEMA)
            sql.execute("INSERT INTO lock (id, name, token) VALUES (1, ?, ?)", (name, token))
        self.path.chmod(0o600)
        self._bytes: list[int] = []

    def sql(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, isolation_level=None)

    def hold(self, ttl: float = 60.0, pid: int | None = None, started: int = 0) -> None:
        host = Host.read()
        self._lock_byte(1)
        with self.sql() as sql:
            sql.execute(
                "UPDATE lock SET changes = changes + 1, changed = ?, boot = ?, machine = ?, contained = ?,"
                " namespace = ?, uid = ?, started = ?, ticket = 1, ttl = ?, owner = 'them', host = 'here', pid = ?,"
                " user = 'u', command = 'c', since = 1",
                (
                    *(boottime() - host.shift, host.boot, host.machine, host.contained, host.namespace, os.geteuid()),
                    *(started, ttl, pid or os.getpid()),
                ),
            )
        sql.close()

    def wait(self) -> None:
        self._lock_byte(2)
        with self.sql() as sql:
            sql.execute("INSERT INTO waiter VALUES (2, 'waiter', 'here', 1, 'u', 'c', NULL, 1)")
        sql.close()

    def release(self) -> None:
        with self.sql() as sql:
            sql.execute("UPDATE lock SET owner = '', ttl = 0, changes = changes + 1")
        sql.close()
        self.end()

    def end(self) -> None:
        """The process is gone, and the kernel drops its bytes."""
        while self._bytes:
            os.close(self._bytes.pop())

    def _lock_byte(self, ticket: int) -> None:
        descriptor = os.open(self.path, os.O_RDWR)
        byte = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 2**40 + ticket, 1, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, byte)
        self._bytes.append(descriptor)


@pytest.fixture
def earlier(folder: Path) -> Iterator[Earlier]:
    made = Earlier(folder)
    yield made
    made.end()


def test_a_lock_that_nobody_has_is_taken_over_and_its_token_with_it(backend: LocalBackend, earlier: Earlier) -> None:
    shown = backend.inspect("n", 5.0)
    assert (shown.name, shown.held, shown.token) == ("n", False, FUTURE)
    assert [state.token for state in backend.locks(5.0)] == [FUTURE]
    grant = try_once(backend, "n")
    assert grant
    assert grant.token
    assert grant.token > FUTURE
    assert earlier.path.is_dir()
    assert sorted(earlier.path.parent.iterdir()) == [earlier.path]
    backend.release(grant, 5.0)
    again = try_once(backend, "n")
    assert again
    assert again.token == grant.token + 1


def test_one_that_somebody_has_is_theirs_until_they_give_it_back(backend: LocalBackend, earlier: Earlier) -> None:
    earlier.hold()
    before = earlier.path.read_bytes()
    assert try_once(backend, "n") is None
    state = backend.inspect("n", 5.0)
    assert state.held
    assert state.holder
    assert (state.holder.owner, state.ttl) == ("them", 60.0)
    assert state.expires_in
    assert 50 < state.expires_in <= 60
    with backend.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        assert earlier.path.read_bytes() == before
        earlier.release()
        acquire(ticket, 5.0)


def test_one_that_is_not_renewed_ends_with_its_ttl(backend: LocalBackend, earlier: Earlier) -> None:
    earlier.hold(ttl=1.5)
    begun = boottime()
    with backend.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        acquire(ticket, 6.0)
    assert boottime() - begun > 1.0


def test_one_whose_processes_are_all_gone_is_free_at_once(backend: LocalBackend, earlier: Earlier) -> None:
    gone = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    earlier.hold(ttl=3600.0, pid=gone.pid, started=started(gone.pid))
    gone.communicate()
    assert try_once(backend, "n") is None, "its renewer lives"
    earlier.end()
    assert try_once(backend, "n")


def test_one_that_somebody_waits_for_is_theirs(backend: LocalBackend, earlier: Earlier) -> None:
    earlier.wait()
    assert try_once(backend, "n") is None
    assert [client.owner for client in backend.inspect("n", 5.0).waiters] == ["waiter"]
    earlier.end()
    assert try_once(backend, "n")


def test_of_many_that_come_at_once_each_has_it_alone(folder: Path, earlier: Earlier) -> None:
    def work(_: int) -> tuple[float, float, int | None]:
        backend = LocalBackend.from_url(f"local://{folder}", environment())
        try:
            grant = take(backend, "n", seconds=20.0)
            begun = boottime()
            ended = boottime()
            backend.release(grant, 5.0)
            return begun, ended, grant.token
        finally:
            backend.close()

    with ThreadPoolExecutor(8) as pool:
        lives = sorted(pool.map(work, range(8)))
    tokens = [token for _, _, token in lives]
    assert all(before[1] <= after[0] for before, after in pairwise(lives))
    assert tokens == sorted(set(tokens), key=lambda token: token or 0)
    assert earlier.path.is_dir()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (b"", "is damaged"),
        (b"garbage" * 1000, "is damaged"),
        (None, "unknown layout version 7"),
    ],
    ids=["empty", "garbage", "layout 7"],
)
def test_a_file_that_is_no_such_lock_is_never_free(
    backend: LocalBackend, earlier: Earlier, damage: bytes | None, said: str
) -> None:
    if damage is None:
        with earlier.sql() as sql:
            sql.execute("PRAGMA user_version = 7")
        sql.close()
    else:
        earlier.path.write_bytes(damage)
    for use in (lambda: try_once(backend, "n"), lambda: backend.inspect("n", 5.0), lambda: list(backend.locks(5.0))):
        with pytest.raises(Unavailable, match=said) as caught:
            use()
        assert caught.value.permanent
        assert str(earlier.path) in str(caught.value)
    assert earlier.path.is_file()


def test_the_lock_of_another_name_is_not_taken(folder: Path, backend: LocalBackend) -> None:
    stranger = Earlier(folder, "another")
    stranger.path.rename(folder / (hashlib.sha256(b"n").hexdigest() + ".lock"))
    with pytest.raises(Unavailable, match="holds the lock 'another', not 'n'"):
        try_once(backend, "n")


def test_through_the_command(tmp_path: Path) -> None:
    """A job that began before the upgrade: conflict, waiting, and status as ever."""
    lab = Lab(tmp_path, f"local://{tmp_path / 'locks'}")
    (tmp_path / "locks").mkdir(mode=0o700)
    earlier = Earlier(tmp_path / "locks", "job")
    try:
        earlier.hold()
        done = lab.run("-n", "-v", "job", "--", "true")
        assert done.returncode == 75
        assert b"held by here:" in done.stderr
        shown = subprocess.run([DISTLOCK, "status"], env=lab.environment, capture_output=True, text=True, check=True)
        assert "job" in shown.stdout
        assert lab.run("-w", "0.5", "job", "--", "true").returncode == 75
        waiter = lab.start("job", "--", "sh", "-c", "echo $DISTLOCK_FENCING_TOKEN")
        earlier.release()
        out, err = waiter.communicate(timeout=10)
        assert (waiter.returncode, err) == (0, b"")
        assert int(out) > FUTURE
    finally:
        earlier.end()
        lab.close()


def test_taking_over_needs_nobody_to_wait_for_others(backend: LocalBackend, folder: Path) -> None:
    """Other locks in the directory, of either layout, are left as they are."""
    held = Earlier(folder, "held")
    held.hold()
    Earlier(folder, "free")
    take(backend, "free")
    take(backend, "new")
    assert {state.name: state.held for state in backend.locks(5.0)} == {"held": True, "free": True, "new": True}
    assert held.path.is_file()
    held.end()
