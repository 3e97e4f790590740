"""Local locks: the queue beyond its contract (frozen waiters), the byte locks under it, and what it may not leak."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import local_fixtures
from contenders import Contender, acquire, environment, never, request, take, try_once
from distlock.backends.base import Unavailable
from distlock.backends.local import LocalBackend
from distlock.backends.local_boot import Ages
from distlock.backends.local_queue import Watcher, byte_is_locked, lock_byte, unlock_byte
from distlock.clock import boottime
from processes import wait_until

url = local_fixtures.url
backend = local_fixtures.backend


def only_database(directory: Path) -> Path:
    (path,) = (directory / "locks").glob("*.lock/lock.db")
    return path


def test_a_frozen_waiter_is_passed_after_five_seconds(url: str, backend: LocalBackend) -> None:
    held = take(backend, "n")
    with Contender(url, "n") as frozen, Contender(url, "n") as next_one, Contender(url, "n") as last:
        for waiter in (frozen, next_one, last):
            waiter.expect("waiting")
        frozen.signal(signal.SIGSTOP)
        released = boottime()
        backend.release(held, 5.0)
        token, at = next_one.granted()
        assert 5.0 <= at - released < 6.5
        next_one.tell("release")
        next_one.expect("released")
        last.granted(1.0)  # the frozen one delays only once
        frozen.signal(signal.SIGCONT)
        last.tell("release")
        assert frozen.granted()[0] > token + 1


def test_a_single_try_passes_frozen_waiters_too(url: str, backend: LocalBackend) -> None:
    held = take(backend, "n")
    with ExitStack() as stack:
        for _ in range(2):
            waiter = stack.enter_context(Contender(url, "n"))
            waiter.expect("waiting")
            waiter.signal(signal.SIGSTOP)
        released = boottime()
        backend.release(held, 5.0)
        wait_until(lambda: try_once(backend, "n"))
        assert 6.5 <= boottime() - released < 7.5


def test_an_expired_lease_behind_a_frozen_waiter(url: str, backend: LocalBackend) -> None:
    expired = take(backend, "n", ttl=0.5)
    with Contender(url, "n") as frozen:
        frozen.expect("waiting")
        frozen.signal(signal.SIGSTOP)
        with backend.enqueue(request("n", 30.0)) as ticket:
            acquire(ticket)
        assert 5.5 <= boottime() - expired.valid_from < 7.0


def test_a_killed_waiter_wakes_the_one_behind_it(url: str, backend: LocalBackend) -> None:
    """It has to watch somebody else from now on, or the next release is seen only by the fallback."""
    held = take(backend, "n")
    with Contender(url, "n") as dying, Contender(url, "n") as last:
        dying.expect("waiting")
        last.expect("waiting")
        dying.kill()
        wait_until(lambda: len(backend.inspect("n", 5.0).waiters) == 1)
        released = boottime()
        backend.release(held, 5.0)
        assert last.granted()[1] - released < 0.3


def test_after_a_release_one_record_remains(backend: LocalBackend, tmp_path: Path) -> None:
    tokens = []
    for _ in range(3):
        grant = take(backend, "n")
        backend.release(grant, 5.0)
        tokens.append(grant.token)
    assert len(list((tmp_path / "locks").iterdir())) == 1
    assert sorted(path.name for path in only_database(tmp_path).parent.iterdir()) == ["lock.db", "queue"]
    database = sqlite3.connect(only_database(tmp_path))
    assert database.execute("SELECT count(*) FROM waiter").fetchone() == (0,)
    kept = database.execute("SELECT name, token, owner, host, pid, user, command, label, since FROM lock").fetchone()
    database.close()
    assert kept == ("n", tokens[-1], "", "", 0, "", "", None, 0)


def test_nothing_leaks(backend: LocalBackend) -> None:
    def used() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    def once() -> None:
        held = take(backend, "n")
        with backend.enqueue(request("n", 30.0)) as winning, backend.enqueue(request("n", 30.0)) as leaving:
            with never() as cancel:
                for ticket in (winning, leaving):
                    assert ticket.poll() is None
                    ticket.wait(0.001, cancel)
            backend.release(held, 5.0)
            backend.release(acquire(winning), 5.0)
        backend.inspect("n", 5.0)
        list(backend.locks(5.0))

    once()
    before = used()
    for _ in range(10):
        once()
    wait_until(lambda: used() == before)


def test_many_threads_count_under_the_lock(url: str) -> None:
    """Each opens and closes the same file all the time, which must not drop SQLite's locks of the others."""
    counter = [0]

    def count() -> None:
        own = LocalBackend.from_url(url, environment())
        for _ in range(10):
            grant = take(own, "n", seconds=60.0)
            own.inspect("n", 5.0)
            seen = counter[0]
            os.sched_yield()
            counter[0] = seen + 1
            own.release(grant, 5.0)
        own.close()

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter == [80]


WRITER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    database.execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as error:
    print(error)
"""


def test_opening_and_closing_keeps_the_locks_of_the_process(backend: LocalBackend, tmp_path: Path) -> None:
    """Closing a descriptor of SQLite's files would drop them, in the middle of a transaction too."""
    backend.release(take(backend, "n"), 5.0)
    path = only_database(tmp_path)
    database = backend.open_or_create("n", 5.0, Ages(backend.host, backend.clock))
    with database.transaction(5.0):
        backend.inspect("n", 5.0)
        list(backend.locks(5.0))
        backend.open_or_create("n", 5.0, Ages(backend.host, backend.clock)).close()
        tried = subprocess.run([sys.executable, "-c", WRITER, path], capture_output=True, check=True)
        assert tried.stdout == b"database is locked\n"
        assert path.with_name("lock.db-wal").exists()  # that program was not the last to close
    database.close()


def test_a_frozen_transaction_is_unavailable_in_time(backend: LocalBackend, tmp_path: Path) -> None:
    grant = take(backend, "n")
    frozen = subprocess.Popen(
        [sys.executable, "-c", WRITER + "print('in', flush=True); sys.stdin.read()", only_database(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert frozen.stdout is not None
    assert frozen.stdout.readline() == b"in\n"
    calls: list[Callable[[], object]] = [
        lambda: backend.renew(grant, 0.3),
        lambda: backend.release(grant, 0.3),
        lambda: try_once(backend, "n", ttl=0.9),
    ]
    for call in calls:
        start = boottime()
        with pytest.raises(Unavailable, match="busy") as caught:
            call()
        assert not caught.value.permanent
        assert boottime() - start < 1.0
    assert backend.inspect("n", 0.3).held  # reading needs no turn
    frozen.communicate()
    backend.release(backend.renew(grant, 5.0), 5.0)


def test_bytes_are_locked_by_open_file_and_watched(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    first, second = (os.open(path, os.O_RDWR) for _ in range(2))
    event = os.eventfd(0, os.EFD_NONBLOCK)
    assert lock_byte(first, 7)
    assert not lock_byte(second, 7)
    assert lock_byte(second, 8)
    assert byte_is_locked(second, 7)
    assert not byte_is_locked(first, 7)
    assert not byte_is_locked(first, 9)
    Watcher(second, event, 7)
    with pytest.raises(BlockingIOError):
        os.eventfd_read(event)
    os.close(os.open(path, os.O_RDONLY))  # of no consequence, unlike SQLite's kind of lock
    assert byte_is_locked(second, 7)
    unlock_byte(first, 7)

    def woken() -> bool:
        try:
            return os.eventfd_read(event) == 1
        except BlockingIOError:
            return False

    wait_until(woken)
    wait_until(lambda: not byte_is_locked(second, 7) and not byte_is_locked(first, 7))
    for descriptor in (first, second, event):
        os.close(descriptor)
