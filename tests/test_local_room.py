"""Local locks on a disk that is full or cannot be written: one clear line, and a lease that is held is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contenders import Contender, environment, take
from distlock.backends.local import LocalBackend
from processes import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def backend(folder: Path) -> Iterator[LocalBackend]:
    opened = LocalBackend.from_url(f"local://{folder}", environment())
    yield opened
    opened.close()


def _mounted(folder: Path, prepare: str) -> list[str]:
    """A command prefix: in a mount namespace of its own, with a tiny file system on the folder."""
    folder.mkdir()
    return [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=256k,mode=700 none "$0" && {prepare} && exec "$@"',
        str(folder),
    ]


def test_no_room_for_a_new_file(folder: Path) -> None:
    prefix = _mounted(folder, '{ cat /dev/zero > "$0/filler" 2> /dev/null || :; }')
    with Contender(f"local://{folder}", "n", prefix=prefix) as contender:
        message, _ = contender.expect("failed")
    assert message.startswith(f"Unavailable: {folder}")
    assert message.endswith("no space left to store the lock")


def test_no_room_for_a_grant_leaves_the_lock_as_it_was(backend: LocalBackend, folder: Path, tmp_path: Path) -> None:
    token = take_and_release(backend)
    (name,) = (lock.name for lock in folder.iterdir())
    folder.rename(tmp_path / "saved")
    prepare = f'cp -a "{tmp_path}/saved/{name}" "$0" && {{ cat /dev/zero > "$0/filler" 2> /dev/null || :; }}'
    with Contender(f"local://{folder}", "n", prefix=_mounted(folder, prepare)) as contender:
        message, _ = contender.expect("failed")
        assert message == f"Unavailable: {folder / name}: no space left to store the lock"
    assert token


def test_a_file_system_that_is_read_only(backend: LocalBackend, folder: Path, tmp_path: Path) -> None:
    take_and_release(backend)
    (name,) = (lock.name for lock in folder.iterdir())
    folder.rename(tmp_path / "saved")
    for prepare, path in (
        ('mount -o remount,ro "$0"', folder),
        (f'cp -a "{tmp_path}/saved/{name}" "$0" && mount -o remount,ro "$0"', folder / name),
    ):
        with Contender(f"local://{folder}", "n", prefix=_mounted(folder, prepare)) as contender:
            message, _ = contender.expect("failed")
        assert message == f"Unavailable: {path}: read-only file system"
        folder.rmdir()


def take_and_release(backend: LocalBackend) -> int | None:
    grant = take(backend, "n")
    backend.release(grant, 5.0)
    return grant.token


def test_a_full_disk_takes_no_lease_from_its_holder(folder: Path) -> None:
    """Renewals and the release change what is stored already; the log that they go through begins anew."""
    folder.mkdir()
    fill = 'cat /dev/zero > "$0/filler" 2> /dev/null; cat /dev/zero > "$0/filler2" 2> /dev/null; echo full'
    script = f"""mount -t tmpfs -o size=256k,mode=700 none "$0" || exit
        ( sleep 2; {fill} > "$0.full" ) &
        exec "$@" """
    prefix = ["unshare", "--mount", "sh", "-c", script, str(folder)]
    with Contender(f"local://{folder}", "n", ttl=3.0, prefix=prefix) as holder:
        holder.granted()
        wait_until(Path(f"{folder}.full").exists)
        wait_until(lambda: Path(f"{folder}.full").read_text() != "")
        for _ in range(60):  # more than the log could take
            holder.tell("renew")
            holder.expect("renewed")
        holder.tell("release")
        holder.expect("released")
