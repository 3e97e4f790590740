"""One lock database: making it, opening it, one transaction at a time, and what its errors mean.

WAL with synchronous=NORMAL: a commit is one write to the log and waits for no disk (0.02 ms; 0.7 ms and four syncs
with a rollback journal), and neither a kill nor a power loss damages the database. What that gives up is made good:

* a power loss may take the last transactions. It takes all holders of this host too, so nothing of them is needed any
  more but the tokens, which must not come again: these are reserved in blocks, and a reservation is synced.
* a lost or damaged log would take them away in silence: the witness tells (local_witness.py), and all files are seen
  to be the same before each use (local_files.py).
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from . import local_witness as witness
from .base import DistlockError, Unavailable
from .local_directory import failure
from .local_files import DATABASE, QUEUE, Files, create, damaged
from .local_floor import unpurged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .local_boot import Host

Changed = TypeVar("Changed")

APPLICATION = 0x646C6B31
LAYOUT = 2
BLOCK = 1000
"""Tokens that one sync reserves, and the most that a reboot skips."""
_LONGEST_LOG = 250
"""Pages (1 MB). Who commits behind so many copies them into the database, which takes two syncs."""
_PLAIN = b"/._-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class Database:
    """An open lock: SQLite's connection, and the descriptor of the queue file, which carries byte locks.

    The process may have it open several times, in several threads: SQLite sees to that as long as nobody else opens
    its files, because closing ANY descriptor of such a file drops the process's locks on it.
    """

    def __init__(self, path: Path, name: str | None, host: Host, timeout: float, *, to_write: bool = True) -> None:
        """Opens what exists. ``name`` None takes any lock's.
        Raises FileNotFoundError, Moved, Unavailable, Refused."""
        self.path = path
        self._boot = host.boot
        self._patience = -1
        self._connection: sqlite3.Connection | None = None
        try:
            with unpurged(path.parent, timeout):
                self._files = Files(path, to_write=to_write)
                self.descriptor = self._files.queue
                self.name = self._opened(name, timeout)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise failure(path, error) from error

    def _opened(self, name: str | None, timeout: float) -> str:
        try:
            if self._files.size < witness.SIZE:
                raise damaged(self.path, f"{QUEUE} is too short")
            return self._verified(name, timeout)
        except BaseException:
            self.close()
            raise

    def _verified(self, name: str | None, timeout: float) -> str:
        self._connection = self._connected(timeout)
        with self._begun(timeout, "BEGIN") as sql:
            (application,) = sql.execute("PRAGMA application_id").fetchone()
            if application != APPLICATION:
                raise damaged(self.path, "it is no database of distlock")
            (layout,) = sql.execute("PRAGMA user_version").fetchone()
            if layout != LAYOUT:
                message = f"{self.path} has the unknown layout version {layout}; this program knows {LAYOUT}"
                raise Unavailable(message, permanent=True)
            (verdict,) = sql.execute("PRAGMA quick_check(1)").fetchone()  # 0.04 ms
            row = sql.execute("SELECT name, (SELECT min(ticket) FROM waiter) FROM lock").fetchone()
            if verdict != "ok" or row is None:
                raise damaged(self.path, "it does not pass SQLite's quick_check")
            self._files.remember_database()
        if name is not None and row[0] != name:
            raise Unavailable(f"{self.path} holds the lock {row[0]!r}, not {name!r}", permanent=True)
        return str(row[0])

    def _connected(self, timeout: float) -> sqlite3.Connection:
        try:
            # mode=rw never creates.
            uri = f"file:{quoted_path(self.path / DATABASE)}?mode=rw"
            connection = sqlite3.connect(
                uri, uri=True, timeout=max(0.0, timeout), isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LONGEST_LOG}")
        except sqlite3.Error as error:
            self._files.check()
            raise translated(self.path, error) from error
        return connection

    @contextmanager
    def transaction(
        self, timeout: float, begin: str = "BEGIN IMMEDIATE", *, synced: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """Commit at the end, roll back at an exception. ``synced``: what it wrote is on the disk before anybody else
        can see it. Raises Moved, Unavailable, Refused."""
        sql = self._connection
        assert sql is not None
        if synced:
            sql.execute("PRAGMA synchronous = FULL")
        try:
            with self._witnessed(timeout, begin):
                yield sql
        finally:
            if synced:
                sql.execute("PRAGMA synchronous = NORMAL")

    @contextmanager
    def _witnessed(self, timeout: float, begin: str) -> Iterator[sqlite3.Connection]:
        least = witness.least(self.descriptor, self._boot)  # before the transaction, which sees all that it tells of
        with self._begun(timeout, begin) as sql:
            before = _changes(sql)
            if before < least:
                raise damaged(self.path, "its last transactions are lost")
            yield sql
            after = _changes(sql)
        if after != before:
            with suppress(OSError):
                witness.testify(self.descriptor, self._boot, after)

    @contextmanager
    def _begun(self, timeout: float, begin: str) -> Iterator[sqlite3.Connection]:
        sql = self._connection
        assert sql is not None
        try:
            self._wait_at_most(sql, max(0, int(timeout * 1000)))
            sql.execute(begin)
            self._files.check()  # behind the wait for others
            yield sql
            sql.execute("COMMIT")
        except sqlite3.Error as error:
            self._files.check()  # a log that was taken away reads as an input/output error
            raise translated(self.path, error) from error
        except OSError as error:  # byte locks
            raise failure(self.path, error) from error
        finally:
            with suppress(sqlite3.Error):  # closing rolls back as well, and so does whoever opens the file next
                if sql.in_transaction:
                    sql.execute("ROLLBACK")

    def _wait_at_most(self, sql: sqlite3.Connection, milliseconds: int) -> None:
        if milliseconds != self._patience:
            sql.execute(f"PRAGMA busy_timeout = {milliseconds}")
            self._patience = milliseconds

    def change(
        self, function: Callable[[sqlite3.Connection], Changed], timeout: float, *, synced: bool = False
    ) -> Changed:
        """A transaction that a full disk does not keep from changing what is stored already. The log is copied into the
        database then, so that it begins anew and needs no room."""
        try:
            with self.transaction(timeout, synced=synced) as sql:
                return function(sql)
        except Unavailable as error:
            if _code(error.__cause__) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise
            with suppress(sqlite3.Error):
                if self._connection is not None:
                    self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        with self.transaction(timeout, synced=synced) as sql:
            return function(sql)

    def close(self) -> None:
        """The last one to close takes the log away."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        os.close(self.descriptor)


def _changes(sql: sqlite3.Connection) -> int:
    row = sql.execute("SELECT changes FROM lock").fetchone()
    if row is None:
        raise sqlite3.DatabaseError("the lock's record is missing")
    return int(row[0])


@cache
def schema() -> str:
    return Path(__file__).with_name("local.sql").read_text(encoding="utf-8")


def create_lock(path: Path, name: str, group: int | None, host: Host, floor: int) -> None:
    """A new lock unless there is one. Its tokens begin at the time in microseconds, above those of a lock of the same
    name that somebody removed, and above ``floor``."""

    def fill(unfinished: Path) -> None:
        (unfinished / QUEUE).write_bytes(witness.testimony(host.boot, 0))
        database = f"file:{quoted_path(unfinished / DATABASE)}?mode=rw"
        token = max(int(time.time() * 1e6), floor)
        connection = sqlite3.connect(database, uri=True, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = OFF")
            connection.executescript(schema())
            values = (name, token, token + BLOCK, host.boot)
            connection.execute("INSERT INTO lock (id, name, token, reserved, reserver) VALUES (1, ?, ?, ?, ?)", values)
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.Error as error:
            raise translated(unfinished, error) from error
        finally:
            connection.close()

    create(path, group, fill)


def quoted_path(path: Path) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in bytes(path))


def _busy(path: Path) -> Unavailable:
    return Unavailable(f"{path} is busy: a process may be frozen in the middle of a transaction")


def _code(error: BaseException | None) -> int:
    """The primary one of an extended one; 0 if it is no error of SQLite's."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def translated(path: Path, error: sqlite3.Error) -> DistlockError:
    code = _code(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return damaged(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _busy(path)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return Unavailable(f"{path}: no space left to store the lock")
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        # Most often the log could not be made beside the database. SQLite does not say why.
        try:
            if os.statvfs(path).f_flag & os.ST_RDONLY:
                return failure(path, OSError(errno.EROFS, ""))
            if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
                return failure(path, OSError(errno.EACCES, ""))
            for file in path.iterdir():
                if not os.access(file, os.R_OK | os.W_OK):
                    return failure(file, OSError(errno.EACCES, ""))
        except OSError as reason:
            return failure(path, reason)
    if code == sqlite3.SQLITE_ERROR:
        return damaged(path, str(error))  # tables or columns are missing
    return Unavailable(f"{path}: {error}")


def _is_full(path: Path) -> bool:
    """SQLite calls it an input/output error when it cannot make the index of its log."""
    try:
        return os.statvfs(path).f_bavail == 0
    except OSError:
        return False
