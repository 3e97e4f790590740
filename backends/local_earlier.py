"""Locks that a distlock with layout 1 has left: one file a lock, with a rollback journal and the queue's bytes in it.

One that nobody has is taken over, its token with it. One that somebody has, or waits for, is theirs: it is not written
to, and tried again. Both layouts use the same path, a file there and a directory here, so that an earlier distlock
beside this one either finds its file or is told (69) that there is none.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from .base import LockState, Unavailable
from .local_boot import Ages, Host
from .local_crash import CrashProof
from .local_database import APPLICATION, quoted_path, translated
from .local_directory import failure
from .local_files import HeldEarlier, Moved, damaged
from .local_queue import byte_is_locked
from .local_record import CLIENT, Record, waiters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .base import Client

_LAYOUT = 1
_RECORD = f"token, tickets, changes, changed, boot, machine, contained, namespace, uid, started, ticket, ttl, {CLIENT}"


class _Found(NamedTuple):
    name: str
    record: Record
    queue: dict[int, Client]
    """Of living waiters."""
    holder_shows: bool
    """Whether the holder's byte is locked."""

    def is_held(self, host: Host, age: float) -> bool:
        return self.record.free_for(age) is None and (self.holder_shows or not CrashProof(host).given(self.record))


def take_over(path: Path, name: str, host: Host, ages: Ages, timeout: float) -> int:
    """Removes a lock that nobody has: the last token granted. Raises HeldEarlier, Moved, Unavailable, Refused."""
    with _opened(path, timeout, "BEGIN EXCLUSIVE") as (sql, descriptor):  # nobody is granted it meanwhile
        found = _read(path, name, sql, descriptor)
        if found.queue or found.is_held(host, ages.age(found.record, ages.now())):
            raise HeldEarlier
        try:
            os.unlink(path)
            with suppress(FileNotFoundError):
                os.unlink(f"{path}-journal")
        except OSError as error:
            raise failure(path, error) from error
        return found.record.token


def look(path: Path, name: str | None, host: Host, clock: Callable[[], float], timeout: float) -> LockState:
    """Raises Moved, Unavailable, Refused."""
    ages = Ages(host, clock)
    with _opened(path, timeout, "BEGIN") as (sql, descriptor):
        found, now = _read(path, name, sql, descriptor), ages.now()
    record, age = found.record, ages.age(found.record, now)
    held = found.is_held(host, age)
    return LockState(
        name=found.name,
        held=held,
        token=record.token,
        holder=record.holder if held else None,
        ttl=record.ttl if held else None,
        expires_in=record.ttl - age if held else None,
        waiters=tuple(found.queue.values()),
    )


@contextmanager
def _opened(path: Path, timeout: float, begin: str) -> Iterator[tuple[sqlite3.Connection, int]]:
    """In a transaction, with a descriptor for the bytes: that is closed last, since it drops SQLite's own locks."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise Moved from None
    except OSError as error:
        raise failure(path, error) from error
    try:
        uri = f"file:{quoted_path(path)}?mode=rw"  # never creates
        with closing(sqlite3.connect(uri, uri=True, timeout=max(0.0, timeout), isolation_level=None)) as sql:
            sql.execute(begin)
            if not os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                raise Moved  # while we waited
            yield sql, descriptor
            sql.execute("ROLLBACK")
    except FileNotFoundError:
        raise Moved from None
    except sqlite3.Error as error:
        raise translated(path, error) from error
    finally:
        os.close(descriptor)


def _read(path: Path, name: str | None, sql: sqlite3.Connection, descriptor: int) -> _Found:
    (application,) = sql.execute("PRAGMA application_id").fetchone()
    (layout,) = sql.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise damaged(path, "it is no database of distlock")
    if layout != _LAYOUT:
        raise Unavailable(f"{path} has the unknown layout version {layout}", permanent=True)
    (verdict,) = sql.execute("PRAGMA quick_check(1)").fetchone()
    row = sql.execute(f"SELECT name, {_RECORD} FROM lock").fetchone()
    if verdict != "ok" or row is None:
        raise damaged(path, "it does not pass SQLite's quick_check")
    if name is not None and row[0] != name:
        raise Unavailable(f"{path} holds the lock {row[0]!r}, not {name!r}", permanent=True)
    record = Record.of_layout_1(row[1:])
    queue = {ticket: client for ticket, client in waiters(sql).items() if byte_is_locked(descriptor, ticket)}
    return _Found(row[0], record, queue, byte_is_locked(descriptor, record.ticket))
