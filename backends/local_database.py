"""One lock database: making it, opening it, one transaction at a time, and what its errors mean.

The truth is one SQLite file with a rollback journal. Not WAL: there the last grants lie in a second file, and a lost or
damaged one takes them away in silence. synchronous=FULL, since a committed grant must survive a power cut, and
journal_mode=PERSIST: in DELETE mode the commit is an unlink that nobody syncs, and TRUNCATE makes the file system write
about the journal's size each time.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .base import DistlockError, Unavailable
from .local_directory import failure
from .local_queue import PROCESS_LOCKS, close_quietly

if TYPE_CHECKING:
    from collections.abc import Iterator

APPLICATION = 0x646C6B31
LAYOUT = 1
_SMALLEST = 512
_ABANDONED = 60.0
_PLAIN = b"/._-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class Moved(Exception):
    """The path does not lead to the open file any more: it was removed or replaced."""


class Database:
    """An open lock database: SQLite's connection, and a descriptor of our own that carries byte locks."""

    def __init__(self, path: Path, name: str | None, timeout: float, *, to_write: bool = True) -> None:
        """Opens what exists. ``name`` None takes any lock's.
        Raises FileNotFoundError, Moved, Unavailable, Refused."""
        self.path = path
        try:
            self.descriptor = os.open(path, (os.O_RDWR if to_write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise failure(path, error) from error
        found = os.fstat(self.descriptor)
        self._identity = found.st_dev, found.st_ino
        self._connection: sqlite3.Connection | None = None
        try:
            if found.st_size < _SMALLEST:
                raise _damaged(path, "it is too short")
            self.name = self._verified(name, timeout)
        except BaseException:
            self.close()
            raise

    def _verified(self, name: str | None, timeout: float) -> str:
        self._connection = self._connected(timeout)
        with self.transaction(timeout, "BEGIN") as sql:
            (application,) = sql.execute("PRAGMA application_id").fetchone()
            if application != APPLICATION:
                raise _damaged(self.path, "it is no database of distlock")
            (layout,) = sql.execute("PRAGMA user_version").fetchone()
            if layout != LAYOUT:
                message = f"{self.path} has the unknown layout version {layout}; this program knows {LAYOUT}"
                raise Unavailable(message, permanent=True)
            (verdict,) = sql.execute("PRAGMA quick_check(1)").fetchone()  # 0.04 ms
            row = sql.execute("SELECT name, (SELECT min(ticket) FROM waiter) FROM lock").fetchone()
            if verdict != "ok" or row is None:
                raise _damaged(self.path, "it does not pass SQLite's quick_check")
        if name is not None and row[0] != name:
            raise Unavailable(f"{self.path} holds the lock {row[0]!r}, not {name!r}", permanent=True)
        return str(row[0])

    def _connected(self, timeout: float) -> sqlite3.Connection:
        with PROCESS_LOCKS:
            try:
                # mode=rw never creates. A file that we may only read is opened for reading.
                uri = f"file:{_quoted(self.path)}?mode=rw"
                connection = sqlite3.connect(
                    uri, uri=True, timeout=max(0.0, timeout), isolation_level=None, check_same_thread=False
                )
                connection.execute("PRAGMA journal_mode = PERSIST")
                connection.execute("PRAGMA synchronous = FULL")
            except sqlite3.Error as error:
                self.check_place()
                raise _translated(self.path, error) from error
        return connection

    def check_place(self) -> None:
        """Raises Moved. Without this a holder would go on renewing in a removed file while a contender has a new one;
        and SQLite finds its journal by path, so that it would even write into the journal of the new one."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            raise Moved from None
        except OSError as error:
            raise failure(self.path, error) from error
        if (found.st_dev, found.st_ino) != self._identity:
            raise Moved

    @contextmanager
    def transaction(self, timeout: float, begin: str = "BEGIN IMMEDIATE") -> Iterator[sqlite3.Connection]:
        """Commit at the end, roll back at an exception. Raises Moved, Unavailable, Refused."""
        sql = self._connection
        assert sql is not None
        until = time.monotonic() + timeout
        if not PROCESS_LOCKS.acquire(timeout=max(0.0, timeout)):
            raise _busy(self.path)
        try:
            self.check_place()
            _limit(sql, until)
            sql.execute(begin)
            self.check_place()
            yield sql
            _limit(sql, until)  # the commit waits for readers
            sql.execute("COMMIT")
        except sqlite3.Error as error:
            raise _translated(self.path, error) from error
        except OSError as error:  # byte locks
            raise failure(self.path, error) from error
        finally:
            with suppress(sqlite3.Error):  # closing rolls back as well, and so does whoever opens the file next
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
            PROCESS_LOCKS.release()

    def remove_journal(self) -> None:
        """The journal of a finished transaction, which PERSIST leaves: nothing of value, so no unlink needs a sync."""
        with PROCESS_LOCKS, suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.execute("PRAGMA journal_mode = DELETE")

    def close(self) -> None:
        with PROCESS_LOCKS:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        close_quietly(self.descriptor)


@cache
def schema() -> str:
    return Path(__file__).with_name("local.sql").read_text(encoding="utf-8")


def create(path: Path, name: str, mode: int, group: int | None) -> None:
    """A new database under the path unless there is one. It is complete and on the disk before it is seen there, so
    that an empty or short file is damage and never a free lock. Tokens begin at the time in microseconds, above those
    of a database of the same lock that somebody removed."""
    _remove_abandoned(path)
    unfinished = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if group is not None and os.fstat(descriptor).st_gid != group:
            os.fchown(descriptor, -1, group)
        os.fchmod(descriptor, mode)
        connection = sqlite3.connect(f"file:{_quoted(unfinished)}?mode=rw", uri=True, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.executescript(schema())
            connection.execute("INSERT INTO lock (id, name, token) VALUES (1, ?, ?)", (name, int(time.time() * 1e6)))
        except sqlite3.Error as error:
            raise _translated(unfinished, error) from error
        finally:
            connection.close()
        os.fsync(descriptor)
        os.link(unfinished, path)
        _sync_directory(path.parent)
    except FileExistsError:
        pass  # somebody else was first, with a complete one
    finally:
        os.close(descriptor)
        unfinished.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """What a creator left that was killed half-way. One that is only slow fails to link, and begins again."""
    for unfinished in path.parent.glob(f"{path.name}.*.new"):
        with suppress(FileNotFoundError):
            if time.time() - unfinished.stat().st_mtime > _ABANDONED:
                unfinished.unlink()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _quoted(path: Path) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in bytes(path))


def _damaged(path: Path, reason: str) -> Unavailable:
    return Unavailable(f"{path} is damaged: {reason}; remove it once nobody can be holding the lock", permanent=True)


def _limit(sql: sqlite3.Connection, until: float) -> None:
    sql.execute(f"PRAGMA busy_timeout = {max(0, int((until - time.monotonic()) * 1000))}")


def _busy(path: Path) -> Unavailable:
    return Unavailable(f"{path} is busy: a process may be frozen in the middle of a transaction")


def _translated(path: Path, error: sqlite3.Error) -> DistlockError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code of an extended one
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _busy(path)
    if code == sqlite3.SQLITE_FULL:
        return Unavailable(f"{path}: no space left to store the lock")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        # Most often the journal could not be made beside the database. SQLite does not say why.
        try:
            if os.statvfs(path).f_flag & os.ST_RDONLY:
                return failure(path, OSError(errno.EROFS, ""))
        except OSError as reason:
            return failure(path, reason)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            return failure(path.parent, OSError(errno.EACCES, ""))
    if code == sqlite3.SQLITE_ERROR:
        return _damaged(path, str(error))  # tables or columns are missing
    return Unavailable(f"{path}: {error}")
