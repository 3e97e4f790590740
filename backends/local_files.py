"""The files of one lock, in a directory of their own: making them all at once, and seeing that they are still the same.

``lock.db`` is the SQLite database, ``lock.db-wal`` and ``lock.db-shm`` are SQLite's while somebody has it open, and
``queue`` carries the locked bytes (local_queue.py) and the witness (local_witness.py). They belong together: SQLite
finds the second and third by path and would pair a new database with an old log. So all of them are checked before
each use, and a lock is removed and made as a whole.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from .base import Unavailable
from .local_directory import failure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATABASE = "lock.db"
QUEUE = "queue"
_LOGS = ("lock.db-wal", "lock.db-shm")
ABANDONED = 60.0
"""Seconds after which whoever was making or removing files is taken for dead."""
_REMOVAL = 0.2
"""Seconds for which files may be missing while somebody removes them all one by one."""


class Moved(Exception):
    """The path does not lead to the open files any more: they were removed or replaced."""


class EarlierLayout(Unavailable):
    """The lock is a file, as an earlier distlock made them (local_earlier.py)."""


class HeldEarlier(Exception):
    """Such a lock is had, or waited for, by a process of that earlier distlock."""


class Files:
    """Those of an open lock. Raises FileNotFoundError if there is no such lock, Unavailable if it is not complete."""

    def __init__(self, path: Path, *, to_write: bool) -> None:
        self.path = path
        self.database = path / DATABASE
        self.queue = self._opened(os.O_RDWR if to_write else os.O_RDONLY)
        """A descriptor. One of the database's own would be a trap: closing it drops SQLite's locks of the process."""
        found = os.fstat(self.queue)
        self.size = found.st_size
        self._known = {str(path / QUEUE): (found.st_dev, found.st_ino)}

    def _opened(self, mode: int) -> int:
        until = time.monotonic() + _REMOVAL
        while True:
            try:
                found = self.path.lstat()
                if stat.S_ISREG(found.st_mode):
                    raise EarlierLayout(
                        f"{self.path} is of an earlier distlock: the next run that gets the lock takes it over"
                    )
                if not stat.S_ISDIR(found.st_mode):
                    raise damaged(self.path, "it is no directory")
                self.database.lstat()
                return os.open(self.path / QUEUE, mode | os.O_CLOEXEC | os.O_NOFOLLOW)
            except FileNotFoundError as error:
                self.path.lstat()
                if time.monotonic() >= until:
                    raise damaged(self.path, f"{os.path.basename(error.filename)} is missing") from None
                time.sleep(0.01)

    def remember_database(self) -> None:
        """Once it is open, and its logs with it. Raises Moved."""
        for path in (self.database, *(self.path / log for log in _LOGS)):
            try:
                found = path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                raise Moved from None
            self._known[str(path)] = found.st_dev, found.st_ino

    def check(self) -> None:
        """Raises Moved. Without this a holder would go on renewing in removed files while a contender has new ones."""
        try:
            for path, identity in self._known.items():
                found = os.lstat(path)
                if (found.st_dev, found.st_ino) != identity:
                    raise Moved
        except (FileNotFoundError, NotADirectoryError):
            raise Moved from None
        except OSError as error:
            raise failure(self.path, error) from error


def damaged(path: Path, reason: str) -> Unavailable:
    return Unavailable(f"{path} is damaged: {reason}; remove it once nobody can be holding the lock", permanent=True)


def create(path: Path, group: int | None, fill: Callable[[Path], None]) -> None:
    """A new lock under the path unless there is one; shared with the group if one is given. It is complete and on the
    disk before it is seen there, so that something empty or short is damage and never a free lock. ``fill`` gets an
    empty database and an empty queue to write to."""
    _remove_abandoned(path)
    unfinished = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
    unfinished.mkdir(0o700)
    try:
        for file in (unfinished / DATABASE, unfinished / QUEUE):
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            give(file, 0o600 if group is None else 0o660, group)
        fill(unfinished)
        for file in (unfinished / DATABASE, unfinished / QUEUE):
            sync(file)
        # Before the group can write here, so that nothing in it is anybody else's. SQLite's logs get the group too.
        give(unfinished, 0o700 if group is None else 0o2770, group)
        sync(unfinished)
        os.rename(unfinished, path)
        sync(path.parent)
    except OSError as error:
        if not path.is_dir() or error.filename2 is None:
            raise
        # somebody else was first, with a complete one
    finally:
        remove(unfinished)


def put_aside(path: Path) -> Path:
    """Takes a lock out of everybody's sight, for ``remove``; as what is unfinished is, so that it is removed one day
    whatever happens to us. Not synced: a power loss may bring it back as it was. Raises OSError."""
    aside = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
    os.rename(path, aside)
    return aside


def give(path: Path, mode: int, group: int | None) -> None:
    if group is not None and path.stat().st_gid != group:
        os.chown(path, -1, group)
    path.chmod(mode)  # whatever the umask


def _remove_abandoned(path: Path) -> None:
    """What a creator left that was killed half-way. One that is only slow fails to rename, and begins again."""
    for unfinished in path.parent.glob(f"{path.name}.*.new"):
        with suppress(FileNotFoundError):
            if time.time() - unfinished.stat().st_mtime > ABANDONED:
                remove(unfinished)


def remove(unfinished: Path) -> None:
    """By hand: shutil costs 3 ms to import."""
    with suppress(FileNotFoundError):
        if unfinished.is_dir():
            for file in unfinished.iterdir():
                file.unlink(missing_ok=True)
            unfinished.rmdir()
        else:
            unfinished.unlink()


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
