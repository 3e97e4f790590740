"""Forgetting locks of a directory that nobody uses."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from . import local_floor as floor
from . import local_record as record_of
from . import local_several as several
from .base import DistlockError
from .local_boot import Ages, Host
from .local_database import Database
from .local_directory import failure, shared_group
from .local_files import ABANDONED, QUEUE, EarlierLayout, Moved, put_aside, remove
from .local_queue import byte_is_locked

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


def purge(
    directory: Path,
    paths: Sequence[Path],
    wanted: Callable[[str], bool],
    unused_for: float,
    host: Host,
    clock: Callable[[], float],
    timeout: float,
) -> Iterator[str]:
    """Of the locks at these paths in the directory. Raises the first error of one that cannot be purged at the
    end: Unavailable, Refused."""
    problem: DistlockError | None = None
    try:
        found = directory.stat()
        group = shared_group(found)
        for path in paths:
            try:
                name = _purged(path, wanted, unused_for, host, clock, group, timeout)
            except DistlockError as error:
                problem = problem or error
            else:
                if name is not None:
                    yield name
        _sweep(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise failure(directory, error) from error
    if problem is not None:
        raise problem


def _purged(
    path: Path,
    wanted: Callable[[str], bool],
    unused_for: float,
    host: Host,
    clock: Callable[[], float],
    group: int | None,
    timeout: float,
) -> str | None:
    """The name of the lock, if it is forgotten. One that a distlock with layout 1 left stays until a run takes it over.

    It goes as a whole, inside a transaction of its own: who has just opened it to acquire it waits for that, sees that
    the path leads elsewhere, and makes a new one. What a killed purge leaves is removed by whoever next makes a lock of
    that name. Raises OSError, Unavailable, Refused."""
    try:
        database = Database(path, None, host, timeout)
    except (FileNotFoundError, Moved, EarlierLayout):
        return None
    aside: Path | None = None
    kept_out = ExitStack()
    try:
        if not wanted(database.name):
            return None
        with database.transaction(timeout) as sql:
            record = record_of.read(sql)
            unused = time.time() - (path / QUEUE).stat().st_mtime  # wall clock, as marks are: a reboot is no use
            least = unused_for if record.changes else max(unused_for, ABANDONED)  # one just made is yet to be granted
            if (least > 0 and unused < least) or _is_needed(sql, database, Ages(host, clock)):
                return None
            kept_out.enter_context(floor.unpurged(path.parent, timeout, alone=True))
            floor.raise_to(path.parent, max(record.token, record.reserved), group)
            aside = put_aside(path)
        return database.name
    except (FileNotFoundError, Moved):
        return None
    finally:
        database.close()  # while nobody makes another lock there: SQLite removes logs by path
        kept_out.close()
        if aside is not None:
            remove(aside)


def _is_needed(sql: sqlite3.Connection, database: Database, ages: Ages) -> bool:
    record, now = record_of.read(sql), ages.now()
    holders = several.places(sql, record) or [record]
    return (
        any(holder.free_for(ages.age(holder, now)) is None for holder in holders)
        or any(byte_is_locked(database.descriptor, ticket) for ticket in record_of.waiters(sql))
        or record_of.is_marked(sql)
    )


def _sweep(directory: Path) -> None:
    """Removes what creators and purges left that were killed half-way."""
    for entry in os.scandir(directory):
        if entry.name.endswith(".new"):
            try:
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > ABANDONED:
                    remove(directory / entry.name)
            except FileNotFoundError:
                continue
