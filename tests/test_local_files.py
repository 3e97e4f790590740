"""Local locks: files that were removed, replaced, damaged, cut short, or have no room. Damage is never "free"."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import local_fixtures
from contenders import Contender, acquire, request, take, try_once
from distlock.backends.base import Grant, LeaseLost, Unavailable
from distlock.backends.local import LocalBackend
from distlock.backends.local_boot import Host
from distlock.backends.local_database import create_lock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def url(folder: Path) -> str:
    return f"local://{folder}"


backend = local_fixtures.backend
other = local_fixtures.other


def used(backend: LocalBackend, name: str = "n") -> Grant:
    grant = take(backend, name)
    backend.release(grant, 5.0)
    return grant


def lock_of(folder: Path) -> Path:
    """The directory of the only lock."""
    (path,) = folder.glob("*.lock")
    return path


def database_of(folder: Path) -> Path:
    return lock_of(folder) / "lock.db"


def _removed(file: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        (lock_of(folder) / file).unlink()

    return remove


def _replaced(file: str) -> Callable[[Path], None]:
    """By a copy of itself."""

    def replace(folder: Path) -> None:
        path = lock_of(folder) / file
        shutil.copy(path, folder / "copy")
        (folder / "copy").rename(path)

    return replace


def _all_removed(folder: Path) -> None:
    shutil.rmtree(lock_of(folder))


def _all_replaced(folder: Path) -> None:
    lock = lock_of(folder)
    shutil.copytree(lock, folder / "copy")
    shutil.rmtree(lock)
    (folder / "copy").rename(lock)


FILES = ("lock.db", "lock.db-wal", "lock.db-shm", "queue")
CHANGES = {
    "all removed": _all_removed,
    "all replaced": _all_replaced,
    **{f"{file} removed": _removed(file) for file in FILES},
    **{f"{file} replaced": _replaced(file) for file in FILES},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_removed_or_replaced_files_are_a_lost_lease_and_not_a_free_lock(
    url: str, folder: Path, change: Callable[[Path], None]
) -> None:
    """Two programs, as in life: within one process SQLite shares what it has open."""
    with Contender(url, "n") as holder:
        before, _ = holder.granted()
        change(folder)
        if change is _all_removed:
            with Contender(url, "n") as other:
                assert other.granted()[0] > before  # nobody knows of the old one any more
                holder.tell("renew")
                assert "was removed or replaced" in holder.expect("lost")[0]
                assert not try_to_get(url)
                other.tell("renew")
                other.expect("renewed")
        else:
            assert not try_to_get(url)
            holder.tell("renew")
            assert "was removed or replaced" in holder.expect("lost")[0]
            assert not try_to_get(url)


def try_to_get(url: str) -> bool:
    """Whether a program of its own gets the lock at once; an error of the engine is a no."""
    with Contender(url, "n") as contender:
        return contender.first("granted", "waiting", "failed") == "granted"


def test_a_removed_directory_is_a_lost_lease(backend: LocalBackend, folder: Path) -> None:
    grant = take(backend, "n")
    shutil.rmtree(folder)
    with pytest.raises(LeaseLost, match="was removed or replaced"):
        backend.renew(grant, 5.0)
    backend.release(grant, 5.0)
    assert not folder.exists()
    assert try_once(backend, "n")


def test_a_waiter_goes_over_to_the_new_file(backend: LocalBackend, other: LocalBackend, folder: Path) -> None:
    take(backend, "n")
    with other.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        shutil.rmtree(lock_of(folder))
        present = take(backend, "n")
        assert ticket.poll() is None
        assert [waiter.owner for waiter in backend.inspect("n", 5.0).waiters] != []
        backend.release(present, 5.0)
        assert acquire(ticket, 1.0)


def _overwritten(content: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(content)

    return damage


def _truncated(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(path, size)


def _executed(*statements: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        database = sqlite3.connect(path, isolation_level=None)
        for statement in statements:
            database.execute(statement)
        database.close()

    return damage


def _zeroed_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(4096))


def _scrambled_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\x0d" + os.urandom(4095))


DAMAGES = {
    "empty": _truncated(0),
    "a few bytes": _truncated(99),
    "half a page": _truncated(2048),
    "one page": _truncated(4096),
    "one page short": _truncated(8192),
    "text": _overwritten(b"locked\n"),
    "garbage": _overwritten(os.urandom(12288)),
    "zeros": _overwritten(bytes(12288)),
    "zeroed page": _zeroed_page,
    "scrambled page": _scrambled_page,
    "another application": _executed("PRAGMA application_id = 1"),
    "unknown layout": _executed("PRAGMA user_version = 3"),
    "older layout": _executed("PRAGMA user_version = 1"),
    "no record": _executed("DELETE FROM lock"),
    "no queue": _executed("DROP TABLE waiter"),
    "no table": _executed("DROP TABLE lock"),
    "missing column": _executed("ALTER TABLE lock DROP COLUMN started"),
    "another lock": _executed("UPDATE lock SET name = 'other'"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_unavailable(backend: LocalBackend, folder: Path, damage: Callable[[Path], None]) -> None:
    used(backend)
    damage(database_of(folder))
    content = database_of(folder).read_bytes()
    for use in (
        lambda: try_once(backend, "n"),
        lambda: backend.inspect("n", 5.0),
        lambda: backend.renew(Grant("n", "somebody", 1, 30.0, 0.0), 5.0),
        lambda: backend.release(Grant("n", "somebody", 1, 30.0, 0.0), 5.0),
    ):
        with pytest.raises(Unavailable) as caught:
            use()
        assert caught.value.permanent
        assert str(lock_of(folder)) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert database_of(folder).read_bytes() == content


def test_an_unknown_layout_is_named(backend: LocalBackend, folder: Path) -> None:
    used(backend)
    _executed("PRAGMA user_version = 7")(database_of(folder))
    with pytest.raises(Unavailable, match="unknown layout version 7"):
        take(backend, "n")


def test_a_damaged_file_does_not_hide_the_other_locks(backend: LocalBackend, folder: Path) -> None:
    used(backend, "n")
    database_of(folder).write_bytes(b"")
    used(backend, "a")
    used(backend, "z")
    listing = backend.locks(5.0)
    seen = [next(listing).name, next(listing).name]
    with pytest.raises(Unavailable, match="damaged"):
        next(listing)
    assert sorted(seen) == ["a", "z"]


def test_damage_under_a_holder_is_not_a_lost_lease(url: str, folder: Path) -> None:
    """The core goes on trying until the deadline (what the holder has in memory may do), and nobody else gets in."""
    with Contender(url, "n") as holder:
        holder.granted()
        database_of(folder).write_bytes(bytes(database_of(folder).stat().st_size))
        assert not try_to_get(url)
        holder.tell("renew")
        holder.expect("renewed")
        assert not try_to_get(url)


CRASHING_WRITER = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA cache_size = 1")  # so that pages go to the file before the commit
database.execute("BEGIN IMMEDIATE")
database.execute("UPDATE lock SET token = 5, owner = 'ghost'")
database.execute("CREATE TABLE ghost AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999)"
                 " SELECT i FROM n")
os._exit(0)
"""


def test_a_crash_in_the_middle_of_a_transaction_is_rolled_back(
    backend: LocalBackend, other: LocalBackend, folder: Path
) -> None:
    """The log of a writer that was killed lies there: whoever comes next takes only what was committed."""
    token = used(backend).token
    path = database_of(folder)
    subprocess.run([sys.executable, "-c", CRASHING_WRITER, path], check=True)
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    state = backend.inspect("n", 5.0)
    assert (state.held, state.token) == (False, token)
    after = used(other).token
    assert token is not None
    assert after == token + 1


def test_many_creators_make_one_lock(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    path = folder / "x.lock"
    start = threading.Barrier(8)

    def race() -> None:
        start.wait()
        create_lock(path, "n", None, Host.read(), 0)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(folder.iterdir()) == [path]
    assert sorted(file.name for file in path.iterdir()) == ["lock.db", "queue"]
    before = path.stat().st_ino
    create_lock(path, "n", None, Host.read(), 0)
    assert path.stat().st_ino == before


def test_what_a_killed_creator_left_is_removed(backend: LocalBackend, folder: Path) -> None:
    used(backend)
    path = lock_of(folder)
    old, young = (path.with_name(f"{path.name}.{index}.new") for index in range(2))
    for left in (old, young):
        left.mkdir()
        (left / "queue").touch()
    os.utime(old, (time.time() - 3600,) * 2)
    shutil.rmtree(path)
    used(backend)
    assert not old.exists()
    assert young.exists()
    assert [state.name for state in backend.locks(5.0)] == ["n"]


@pytest.mark.parametrize("missing", [["lock.db"], ["queue"], ["lock.db", "queue"]], ids="-".join)
def test_an_incomplete_lock_is_damaged(backend: LocalBackend, folder: Path, missing: list[str]) -> None:
    used(backend)
    for file in missing:
        (lock_of(folder) / file).unlink()
    with pytest.raises(Unavailable, match=f"damaged: {missing[0]} is missing"):
        try_once(backend, "n")
    with pytest.raises(Unavailable, match=f"damaged: {missing[0]} is missing"):
        backend.inspect("n", 5.0)


def test_a_queue_file_that_was_emptied_is_damage(backend: LocalBackend, folder: Path) -> None:
    used(backend)
    os.truncate(lock_of(folder) / "queue", 0)
    with pytest.raises(Unavailable, match="damaged: queue is too short"):
        try_once(backend, "n")


def test_a_lock_that_is_being_removed_is_waited_for(backend: LocalBackend, folder: Path) -> None:
    """rm -r takes one file after the other."""
    used(backend)
    lock = lock_of(folder)
    (lock / "lock.db").unlink()
    removal = threading.Timer(0.05, shutil.rmtree, args=[lock])
    removal.start()
    assert try_once(backend, "n")
    removal.join()


def test_a_new_lock_begins_above_the_old_one_by_the_time(backend: LocalBackend) -> None:
    before = int(time.time() * 1e6)
    token = used(backend).token
    assert token is not None
    assert before < token <= int(time.time() * 1e6) + 1


def test_text_that_is_no_utf8_is_shown_and_not_fatal(backend: LocalBackend) -> None:
    asked = request("n", 30.0)
    asked = asked._replace(client=asked.client._replace(command=os.fsdecode(b"caf\xe9"), label="a\0b"))
    with backend.enqueue(asked) as ticket:
        acquire(ticket)
    holder = backend.inspect("n", 5.0).holder
    assert holder is not None
    assert (holder.command, holder.label) == (r"caf\udce9", "a\0b")
