"""Local locks: files that were removed, replaced, damaged, cut short, or have no room. Damage is never "free"."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contenders import Contender, acquire, environment, request, take, try_once
from distlock.backends.base import Grant, LeaseLost, Unavailable
from distlock.backends.local import LocalBackend
from distlock.backends.local_database import create


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def backend(folder: Path) -> Iterator[LocalBackend]:
    opened = LocalBackend.from_url(f"local://{folder}", environment())
    yield opened
    opened.close()


@pytest.fixture
def other(folder: Path) -> Iterator[LocalBackend]:
    opened = LocalBackend.from_url(f"local://{folder}", environment())
    yield opened
    opened.close()


def used(backend: LocalBackend, name: str = "n") -> Grant:
    grant = take(backend, name)
    backend.release(grant, 5.0)
    return grant


def file_of(folder: Path) -> Path:
    (path,) = folder.glob("*.lock")
    return path


def test_a_removed_file_is_a_lost_lease(backend: LocalBackend, other: LocalBackend, folder: Path) -> None:
    grant = take(backend, "n")
    file_of(folder).unlink()
    with pytest.raises(LeaseLost, match="was removed or replaced"):
        backend.renew(grant, 5.0)
    after = take(other, "n")  # nobody knows of the old one any more
    assert after.token is not None
    assert grant.token is not None
    assert after.token > grant.token
    with pytest.raises(LeaseLost, match="was removed or replaced"):
        backend.renew(grant, 5.0)
    backend.release(grant, 5.0)
    other.release(other.renew(after, 5.0), 5.0)


def test_a_replaced_file_is_a_lost_lease(backend: LocalBackend, folder: Path) -> None:
    grant = take(backend, "n")
    path = file_of(folder)
    shutil.copy(path, folder / "copy")
    (folder / "copy").rename(path)
    with pytest.raises(LeaseLost, match="was removed or replaced"):
        backend.renew(grant, 5.0)
    backend.release(grant, 5.0)
    assert try_once(backend, "n") is None  # the copy says held


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
        file_of(folder).unlink()
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
    "unknown layout": _executed("PRAGMA user_version = 2"),
    "older layout": _executed("PRAGMA user_version = 0"),
    "no record": _executed("DELETE FROM lock"),
    "no queue": _executed("DROP TABLE waiter"),
    "no table": _executed("DROP TABLE lock"),
    "missing column": _executed("ALTER TABLE lock DROP COLUMN started"),
    "another lock": _executed("UPDATE lock SET name = 'other'"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_is_unavailable(backend: LocalBackend, folder: Path, damage: Callable[[Path], None]) -> None:
    used(backend)
    damage(file_of(folder))
    content = file_of(folder).read_bytes()
    for use in (
        lambda: try_once(backend, "n"),
        lambda: backend.inspect("n", 5.0),
        lambda: backend.renew(Grant("n", "somebody", 1, 30.0, 0.0), 5.0),
        lambda: backend.release(Grant("n", "somebody", 1, 30.0, 0.0), 5.0),
    ):
        with pytest.raises(Unavailable) as caught:
            use()
        assert caught.value.permanent
        assert str(file_of(folder)) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert file_of(folder).read_bytes() == content


def test_an_unknown_layout_is_named(backend: LocalBackend, folder: Path) -> None:
    used(backend)
    _executed("PRAGMA user_version = 7")(file_of(folder))
    with pytest.raises(Unavailable, match="unknown layout version 7"):
        take(backend, "n")


def test_a_damaged_file_does_not_hide_the_other_locks(backend: LocalBackend, folder: Path) -> None:
    used(backend, "n")
    file_of(folder).write_bytes(b"")
    used(backend, "a")
    used(backend, "z")
    listing = backend.locks(5.0)
    seen = [next(listing).name, next(listing).name]
    with pytest.raises(Unavailable, match="damaged"):
        next(listing)
    assert sorted(seen) == ["a", "z"]


def test_damage_under_a_holder_is_unavailable(backend: LocalBackend, folder: Path) -> None:
    """Not lost: the core goes on trying until the deadline, and nobody else gets in."""
    grant = take(backend, "n")
    with file_of(folder).open("r+b") as file:
        file.write(bytes(4096))
    with pytest.raises(Unavailable):
        backend.renew(grant, 5.0)
    with pytest.raises(Unavailable):
        try_once(backend, "n")


def _mounted(folder: Path, prepare: str) -> list[str]:
    """A command prefix: in a mount namespace of its own, with a tiny file system on the folder."""
    folder.mkdir()
    return [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=64k,mode=700 none "$0" && {prepare} && exec "$@"',
        str(folder),
    ]


def test_no_room_for_a_new_file(folder: Path) -> None:
    prefix = _mounted(folder, '{ cat /dev/zero > "$0/filler" 2> /dev/null || :; }')
    with Contender(f"local://{folder}", "n", prefix=prefix) as contender:
        message, _ = contender.expect("failed")
    assert message.startswith(f"Unavailable: {folder}")
    assert message.endswith("no space left to store the lock")


def test_no_room_for_a_grant_leaves_the_lock_as_it_was(backend: LocalBackend, folder: Path, tmp_path: Path) -> None:
    token = used(backend).token
    name = file_of(folder).name
    shutil.copy(file_of(folder), tmp_path / "saved")
    shutil.rmtree(folder)
    prepare = f'cp "{tmp_path}/saved" "$0/{name}" && {{ cat /dev/zero > "$0/filler" 2> /dev/null || :; }}'
    with Contender(f"local://{folder}", "n", prefix=_mounted(folder, prepare)) as contender:
        message, _ = contender.expect("failed")
        assert message == f"Unavailable: {folder / name}: no space left to store the lock"
    assert token


def test_a_file_system_that_is_read_only(backend: LocalBackend, folder: Path, tmp_path: Path) -> None:
    used(backend)
    name = file_of(folder).name
    shutil.copy(file_of(folder), tmp_path / "saved")
    shutil.rmtree(folder)
    for prepare, path in (
        ('mount -o remount,ro "$0"', folder),
        (f'cp "{tmp_path}/saved" "$0/{name}" && mount -o remount,ro "$0"', folder / name),
    ):
        with Contender(f"local://{folder}", "n", prefix=_mounted(folder, prepare)) as contender:
            message, _ = contender.expect("failed")
        assert message == f"Unavailable: {path}: read-only file system"
        folder.rmdir()


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
    """The journal of a writer that was killed lies there: whoever comes next plays it back."""
    token = used(backend).token
    path = file_of(folder)
    before = path.stat().st_size
    subprocess.run([sys.executable, "-c", CRASHING_WRITER, path], check=True)
    assert path.stat().st_size > before
    assert path.with_name(path.name + "-journal").stat().st_size > 0
    state = backend.inspect("n", 5.0)
    assert (state.held, state.token) == (False, token)
    after = used(other).token
    assert token is not None
    assert after == token + 1


def test_many_creators_make_one_file(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    path = folder / "x.lock"
    start = threading.Barrier(8)

    def race() -> None:
        start.wait()
        create(path, "n", 0o600, None)

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(folder.iterdir()) == [path]
    before = path.stat().st_ino
    create(path, "n", 0o600, None)
    assert path.stat().st_ino == before


def test_what_a_killed_creator_left_is_removed(backend: LocalBackend, folder: Path) -> None:
    used(backend)
    path = file_of(folder)
    old, young = (path.with_name(f"{path.name}.{index}.new") for index in range(2))
    for left in (old, young):
        left.touch()
    os.utime(old, (time.time() - 3600,) * 2)
    path.unlink()
    used(backend)
    assert not old.exists()
    assert young.exists()
    assert [state.name for state in backend.locks(5.0)] == ["n"]


def test_a_new_file_begins_above_the_old_one_by_the_time(backend: LocalBackend) -> None:
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
