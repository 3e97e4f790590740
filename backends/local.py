"""Locks of one host, or of the processes that share a directory: ``local:`` and ``local:///DIR``.

One SQLite database a lock, in a directory of its own. The holder's lease is a row judged by the host's boot clock;
queue and crash detection rest on locked bytes of a file beside it, which the kernel drops with their process. Neither
needs a server or leaves anything running. Proof against kill -9 of anybody, a power loss, and removal of the files
(seen at the next renewal); not against a user who may write the directory.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from . import local_floor
from . import local_record as record_of
from .base import (
    SUCCESS,
    Backend,
    DistlockError,
    Grant,
    LeaseLost,
    LockState,
    Mark,
    Marked,
    Refused,
    Safety,
    Unavailable,
    Unmarked,
)
from .local_boot import Ages, Host
from .local_database import Changed, Database, create_lock
from .local_directory import check_directory, directory_of, failure, make_directory, shared_group
from .local_files import EarlierLayout, Moved
from .local_look import look, look_at_all
from .local_queue import unlock_byte
from .local_steps import Steps
from .local_ticket import LocalTicket

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from .base import Environment, Request
    from .probe import Probe

SUFFIX = ".lock"
_TRIES = 4


class LocalBackend(Backend):
    """Locks in one directory. Threads of one process may each have a backend of their own for the same directory."""

    safety: ClassVar[Safety] = "correctness"
    exclusive_until: ClassVar[str] = (
        "the lease ends by CLOCK_BOOTTIME of this host, if the lock's files are left in place"
    )
    token_scope: ClassVar[str] = (
        "the lock's directory; a new one begins at the time in microseconds, so above a removed one unless the clock"
        " was set back"
    )
    fifo: ClassVar[bool] = True
    keeps: ClassVar[bool] = True

    def __init__(self, directory: Callable[[], Path], clock: Callable[[], float], host: Host | None = None) -> None:
        self._choose_directory = directory
        self.clock = clock
        self._given_host = host
        self._kept: dict[str, tuple[Database, int]] = {}  # by owner: the file of a grant, its locked byte

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        if url == "local:":
            return cls(lambda: environment.state_directory() / "locks", environment.clock)
        directory = directory_of(url)
        return cls(lambda: directory, environment.clock)

    @cached_property
    def host(self) -> Host:
        return self._given_host or Host.read()

    @cached_property
    def directory(self) -> Path:
        return self._choose_directory()

    def _path(self, name: str) -> Path:
        return self.directory / (hashlib.sha256(name.encode()).hexdigest() + SUFFIX)

    def open_or_create(self, name: str, timeout: float, ages: Ages) -> Database:
        """Raises HeldEarlier; Unavailable, Refused."""
        path, floor = self._path(name), 0
        until = self.clock() + timeout
        try:
            make_directory(self.directory)
            found = check_directory(self.directory, _mountinfo())
            # Once it is made it can be opened, however long the making took.
            for attempt in count():
                left = until - self.clock()
                if left <= 0 and attempt >= _TRIES:
                    break
                try:
                    return Database(path, name, self.host, timeout)
                except FileNotFoundError:
                    with suppress(FileNotFoundError):  # a tidier took us for dead, or the directory went
                        self._create(name, found, floor, max(left, timeout / _TRIES))
                except EarlierLayout:
                    from .local_earlier import take_over

                    with suppress(Moved):
                        floor = take_over(path, name, self.host, ages, timeout)
                except Moved:
                    continue
        except OSError as error:
            raise failure(self.directory, error) from error
        raise Unavailable(f"{path} is removed or replaced all the time")

    def _create(self, name: str, directory: os.stat_result, floor: int, timeout: float) -> None:
        with local_floor.unpurged(self.directory, timeout):
            floor = max(floor, local_floor.read(self.directory))
            create_lock(self._path(name), name, shared_group(directory), self.host, floor)

    def enqueue(self, request: Request) -> LocalTicket:
        return LocalTicket(self, request)

    def keep(self, owner: str, database: Database, ticket: int) -> None:
        """The file of a new grant stays open: its locked byte says that the holder lives."""
        self._kept[owner] = database, ticket

    def _held(self, grant: Grant, timeout: float) -> Database:
        """The file of a grant, of an earlier backend too. Raises FileNotFoundError."""
        if grant.owner in self._kept:
            return self._kept[grant.owner][0]
        return Database(self._path(grant.name), grant.name, self.host, timeout)

    def _steps(self) -> Steps:
        return Steps(self.host, self.clock)

    def _change(
        self, grant: Grant, change: Callable[[sqlite3.Connection], Changed], timeout: float, *, synced: bool = False
    ) -> Changed:
        """One step under a lease. Raises LeaseLost, also when the files are gone."""
        try:
            database = self._held(grant, timeout)
            try:
                return database.change(change, timeout, synced=synced)
            finally:
                self._close_unless_kept(grant, database)
        except (FileNotFoundError, Moved):
            raise LeaseLost(f"{self._path(grant.name)} was removed or replaced") from None

    def renew(self, grant: Grant, timeout: float) -> Grant:
        steps, valid_from = self._steps(), self.clock()
        ttl = self._change(grant, lambda sql: steps.renew(sql, grant), timeout)
        return grant._replace(ttl=ttl, valid_from=valid_from)

    def alarm(self, grant: Grant) -> int | None:
        return None

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        """The last success alone waits for no disk: a power loss may take it back. Every other mark is on the disk when
        this returns."""
        steps, synced = self._steps(), any(mark.slot != SUCCESS for mark in marks)
        problem: Unavailable | None = None
        try:
            database = self._held(grant, timeout)
        except (FileNotFoundError, Moved):
            return
        try:
            try:
                database.change(lambda sql: steps.release(sql, grant, marks, keep_for), timeout, synced=synced)
            except Unavailable as error:
                if not synced:
                    raise
                # A mark may need a page more than a full disk has; a lock given back needs none.
                success = tuple(mark for mark in marks if mark.slot == SUCCESS)
                database.change(lambda sql: steps.release(sql, grant, success, keep_for), timeout)
                problem = error
        except Moved:
            pass
        except DistlockError:
            self._close_unless_kept(grant, database)  # the caller may try again
            raise
        _, ticket = self._kept.pop(grant.owner, (database, 0))
        if ticket:
            unlock_byte(database.descriptor, ticket)  # wakes the next in line
        database.close()
        if problem:
            raise Unmarked(str(problem)) from problem

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        steps = self._steps()
        self._change(grant, lambda sql: steps.mark(sql, grant, mark), timeout, synced=True)

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        with self._looking(name, timeout) as sql:
            return None if sql is None else record_of.read_mark(sql, slot)

    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        steps = self._steps()
        try:
            self._check_if_there()
            database = Database(self._path(name), name, self.host, timeout)
            try:
                return database.change(lambda sql: steps.revoke(sql, token, owner, by, now), timeout)
            finally:
                database.close()
        except (FileNotFoundError, Moved):
            return False

    @contextmanager
    def _looking(self, name: str, timeout: float) -> Iterator[sqlite3.Connection | None]:
        """None if there is no such lock."""
        try:
            self._check_if_there()
            database = Database(self._path(name), name, self.host, timeout, to_write=False)
        except (FileNotFoundError, Moved):
            yield None
            return
        try:
            with database.transaction(timeout, "BEGIN") as sql:
                yield sql
        finally:
            database.close()

    def _close_unless_kept(self, grant: Grant, database: Database) -> None:
        if grant.owner not in self._kept:
            database.close()

    def inspect(self, name: str, timeout: float) -> LockState:
        try:
            self._check_if_there()
            return look(self._path(name), name, self.host, self.clock, timeout)
        except (FileNotFoundError, Moved):
            return LockState(name, held=False, token=None, holder=None, ttl=None, expires_in=None, waiters=())

    def locks(self, timeout: float) -> Iterator[LockState]:
        """Files that cannot be read do not hide the others: the first such error is raised behind the last lock."""
        return look_at_all(self._paths(), self.host, self.clock, timeout)

    def _paths(self) -> list[Path]:
        """Of all locks."""
        try:
            self._check_if_there()
            return [self.directory / entry for entry in sorted(os.listdir(self.directory)) if entry.endswith(SUFFIX)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failure(self.directory, error) from error

    def _check_if_there(self) -> None:
        try:
            check_directory(self.directory, _mountinfo())
        except FileNotFoundError:
            raise
        except OSError as error:
            raise failure(self.directory, error) from error

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        return ()

    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        raise Refused("local: keeps no fence registers; give a FILE, beside the resource")

    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        self.advance_fence(resource, index, 0, timeout)

    def probe(self, timeout: float) -> Probe:
        from .local_probe import probe

        return probe(self.directory, _mountinfo())

    def purge(
        self, wanted: Callable[[str], bool], unused_for: float, timeout: float, *, fences: bool = False
    ) -> Iterator[str]:
        """A lock that cannot be read stays, and hides no other: raised at the end. There are no fence registers."""
        if fences:
            return
        from .local_purge import purge

        yield from purge(self.directory, self._paths(), wanted, unused_for, self.host, self.clock, timeout)

    def places(self, name: str) -> tuple[str, ...]:
        return (str(self._path(name)),)

    def close(self) -> None:
        while self._kept:
            _, (database, ticket) = self._kept.popitem()
            unlock_byte(database.descriptor, ticket)  # a watcher's duplicate would keep it locked
            database.close()


def _mountinfo() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise Unavailable(f"local locks need /proc: {error}", permanent=True) from error
