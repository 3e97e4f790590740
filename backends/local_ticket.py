"""A place in the queue of one local lock."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from . import local_record as record_of
from .base import DistlockError, Grant, Ticket, Unavailable
from .local_boot import Ages
from .local_crash import CrashProof, started
from .local_database import BLOCK, Database
from .local_directory import failure
from .local_files import HeldEarlier, Moved
from .local_queue import Watcher, byte_is_locked, lock_byte, unlock_byte

if TYPE_CHECKING:
    import sqlite3

    from .base import Client, Request
    from .local import LocalBackend
    from .local_record import Record

LOOK_AGAIN = 1.0
"""Seconds between looks that nobody woke us for; each may vary by a tenth."""
LOOK_AGAIN_AFTER_A_CRASH = 0.08
"""The same while a holder's renewer is dead and the rest of it is not."""
CALL = 5.0
LEAVE = 0.5
"""Who was told to go does not wait longer for its turn to say so."""
FROZEN = 5.0
"""A lock that stayed free for so long has a frozen waiter at the head of its queue."""
FROZEN_SEVERAL = 6.5
"""The same for all but the second in line, who looked in between if it was not frozen too."""


class LocalTicket(Ticket):
    """The place is taken by the first poll that does not win, in the transaction that looked; so an uncontended lock
    costs one. Keeps the file open, and in it the byte of its ticket locked, until it leaves or the grant ends."""

    def __init__(self, backend: LocalBackend, request: Request) -> None:
        self._backend = backend
        self._request = request
        self._timeout = min(CALL, request.ttl / 3)
        self._started = self._start_time()
        self._ages = Ages(backend.host, backend.clock)
        self._ticket = 0  # none yet
        self._watcher: Watcher | None = None
        self._proof = CrashProof(backend.host)
        self._forget()
        self._database: Database | None = self._open()
        self._event = -1  # made when first waiting

    def _open(self) -> Database | None:
        """None while a process of an earlier distlock has the lock: that wakes nobody."""
        try:
            return self._backend.open_or_create(self._request.name, self._timeout, self._ages)
        except HeldEarlier:
            self._look_at = self._backend.clock() + LOOK_AGAIN
            return None

    def _start_time(self) -> int:
        try:
            return started(self._request.client.pid)
        except OSError:
            return 0  # then there is no proof of a crash either

    def _forget(self) -> None:
        self._crashed = ""  # the owner whose crash is proven
        self._suspect: Record | None = None  # a holder whose byte is not locked
        self._target = 0  # the ticket whose end concerns us
        self._look_at = 0.0  # when to poll without being woken

    def poll(self) -> Grant | None:
        grant = self._attempt()
        # Looking for processes takes a while, so not inside a transaction. An owner that is proven dead stays so.
        if grant is None and self._suspect is not None and self._proof.given(self._suspect):
            self._crashed = self._suspect.owner
            grant = self._attempt()
        return grant

    def _attempt(self) -> Grant | None:
        for _ in range(3):
            if self._database is None:
                self._database = self._open()
            if self._database is None:
                return None
            ticket = self._ticket
            try:
                return self._try(self._database)
            except Moved:
                self._leave_file(self._database)  # to the new one, at the end of its queue
            except BaseException:
                if not ticket and self._ticket:
                    unlock_byte(self._database.descriptor, self._ticket)
                    self._ticket = 0
                raise
        raise Unavailable(f"{self._request.name}: the lock's file is removed or replaced all the time")

    def _try(self, database: Database) -> Grant | None:
        host, request = self._backend.host, self._request
        valid_from = self._backend.clock()
        token: int | None = 0
        with database.transaction(self._timeout) as sql:
            now = self._ages.now()
            record = record_of.read(sql)
            queue = self._living(sql, database)
            before = [ticket for ticket in queue if not self._ticket or ticket < self._ticket]
            free_for = record.free_for(self._ages.age(record, now))
            if free_for is None and record.owner == self._crashed:
                free_for = 0.0
                record_of.write_free(sql, host, now)
            patience = FROZEN if len(before) == 1 else FROZEN_SEVERAL
            if free_for is not None and (not before or free_for > patience):
                token = record.next_token(host)
            if token:
                self._draw(database, record)
                for ticket in (*before[:1], self._ticket):  # a frozen head gets its place back if it thaws
                    if ticket in queue:
                        record_of.drop_waiter(sql, ticket)
                record_of.write_grant(sql, request, self._ticket, token, host, now, os.geteuid(), self._started)
            elif token is not None:
                if self._ticket not in queue:
                    self._draw(database, record)
                    record_of.add_waiter(sql, self._ticket, request.client)
                self._plan(database, record, before, free_for, patience, now)
        if token is None:
            self._reserve(database)
            return self._try(database)
        if not token:
            return None
        self._database = None
        self._backend.keep(request.client.owner, database, self._ticket)
        self._close_event()
        return Grant(request.name, request.client.owner, token, request.ttl, valid_from)

    def _reserve(self, database: Database) -> None:
        """More tokens: once in a thousand grants, and for the first grant after a reboot."""
        with database.transaction(self._timeout, synced=True) as sql:
            record = record_of.read(sql)
            if record.next_token(self._backend.host) is None:  # nobody was faster
                record_of.write_reservation(sql, record, self._backend.host, BLOCK)

    def _living(self, sql: sqlite3.Connection, database: Database) -> dict[int, Client]:
        """The queue up to us, without the dead, who are dropped: they cost nobody any time. Those behind us are for the
        next one, so that a grant is as fast in a long queue as in a short one."""
        queue = record_of.waiters(sql, self._ticket or None)
        for ticket in list(queue):
            if ticket != self._ticket and not byte_is_locked(database.descriptor, ticket):
                record_of.drop_waiter(sql, ticket)
                del queue[ticket]
        return queue

    def _draw(self, database: Database, record: Record) -> None:
        """Take a ticket number and its byte, before anybody can see the number."""
        if self._ticket:
            return
        ticket = record.tickets + 1
        while not lock_byte(database.descriptor, ticket):
            ticket += 1  # of a transaction that is being rolled back, or of a file that was restored
        self._ticket = ticket

    def _plan(
        self,
        database: Database,
        record: Record,
        before: list[int],
        free_for: float | None,
        patience: float,
        now: float,
    ) -> None:
        """Whom to watch and when to look again. Those behind others are woken by the one before them."""
        delay = LOOK_AGAIN * (0.9 + os.urandom(1)[0] / 1275)
        self._suspect = None
        self._target = before[-1] if before else record.ticket
        if free_for is not None:
            delay = min(delay, patience - free_for)
        elif not record.kept and not byte_is_locked(database.descriptor, record.ticket):
            self._suspect = record
        if not before and free_for is None:
            delay = min(delay, record.ttl - self._ages.age(record, now))
            if self._suspect is not None:
                self._target = 0
                delay = min(delay, LOOK_AGAIN_AFTER_A_CRASH)
        self._look_at = self._backend.clock() + max(0.0, delay)

    def wait(self, timeout: float, cancel: int) -> None:
        limit = min(timeout, self._look_at - self._backend.clock())
        if limit <= 0:
            return
        if self._database is None:
            select.select([cancel], [], [], limit)
            return
        try:
            if self._event < 0:
                self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            if self._target and (self._watcher is None or self._watcher.ticket != self._target):
                self._watcher = Watcher(self._database.descriptor, self._event, self._target)
        except OSError as error:
            raise failure(self._database.path, error) from error
        poll = select.poll()
        poll.register(self._event, select.POLLIN)
        poll.register(cancel, select.POLLIN)
        poll.poll(limit * 1000)
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return
        self._watcher = None

    def close(self) -> None:
        if self._database is not None:
            try:
                if self._ticket:
                    with self._database.transaction(min(LEAVE, self._timeout)) as sql:
                        record_of.drop_waiter(sql, self._ticket)
            except (DistlockError, Moved):
                pass  # the row is dropped by the next to poll, who finds its byte unlocked
            self._leave_file(self._database)
        self._close_event()

    def _leave_file(self, database: Database) -> None:
        if self._ticket:
            unlock_byte(database.descriptor, self._ticket)  # a watcher's duplicate would keep it locked
        database.close()
        self._database, self._watcher, self._ticket = None, None, 0
        self._forget()

    def _close_event(self) -> None:
        if self._event >= 0:
            os.close(self._event)
            self._event = -1
