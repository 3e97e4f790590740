"""A place in the queue of one local lock."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from . import local_record as record_of
from . import local_several as several
from .base import DistlockError, Grant, Ticket, Unavailable
from .local_boot import Ages
from .local_crash import CrashProof, started
from .local_database import BLOCK, Database
from .local_files import HeldEarlier, Moved
from .local_queue import byte_is_locked, lock_byte, unlock_byte
from .local_wake import Wake
from .several import other_holders

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
        self._wake = Wake()
        self._forget()
        self._database: Database | None = self._open()

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
        self._crashed: set[str] = set()  # owners whose crash is proven
        self._suspects: list[Record] = []  # holders whose bytes are not locked
        self._proofs: dict[str, CrashProof] = {}  # one for each of them
        self._theirs = 0  # how many may hold it, as those say who hold it, if that is not what we say
        self._stalled = (0, 0.0)  # who was first in line while a place was free, and since when
        self._look_at = 0.0  # when to poll without being woken

    def poll(self) -> Grant | None:
        grant = self._attempt()
        # Looking for processes takes a while, so not inside a transaction. An owner that is proven dead stays so.
        if grant is None and self._suspects:
            self._proofs = {
                one.owner: self._proofs.get(one.owner, CrashProof(self._backend.host)) for one in self._suspects
            }
            self._crashed = {one.owner for one in self._suspects if self._proofs[one.owner].given(one)}
            if self._crashed:
                grant = self._attempt()
        if grant is None and self._theirs:
            raise other_holders(self._request.name, self._theirs, self._request.holders)
        return grant

    def _attempt(self) -> Grant | None:
        until = self._backend.clock() + self._timeout
        while self._backend.clock() < until:
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
                if self._ticket != ticket:
                    unlock_byte(self._database.descriptor, self._ticket)
                    self._ticket = ticket
                raise
        raise Unavailable(f"{self._request.name}: the lock's file is removed or replaced all the time")

    def _try(self, database: Database) -> Grant | None:
        request = self._request
        valid_from = self._backend.clock()
        token: int | None = 0
        queued, index = self._ticket, 0
        with database.transaction(self._timeout) as sql:
            now = self._ages.now()
            record = record_of.read(sql)
            queue = self._living(sql, database)
            before = [ticket for ticket in queue if not self._ticket or ticket < self._ticket]
            there, free_for = self._look(sql, record, before, now)
            patience = FROZEN if len(before) == 1 else FROZEN_SEVERAL
            others = bool(there) and there[0].holders != request.holders
            # Whether holders of another boot live is known after their TTL: until then one waits, and is not refused.
            known = any(one.boot == self._backend.host.boot for one in there)
            self._theirs = there[0].holders if others and known else 0
            passes = free_for is not None and free_for > patience  # a frozen one
            if not others and (passes or len(before) < self._room(sql, there, before, free_for)):
                token = record.next_token(self._backend.host)
            if token:
                for ticket in (*before[: int(passes)], self._ticket):  # a frozen head gets its place back if it thaws
                    if ticket in queue:
                        record_of.drop_waiter(sql, ticket)
                index = self._write_grant(sql, database, record, there, token, now)
            elif token is not None:
                if self._ticket not in queue and not self._theirs:
                    self._draw(database, record)
                    record_of.add_waiter(sql, self._ticket, request.client)
                    if request.holders > 1:
                        several.write_wish(sql, self._ticket, request.holders)
                self._plan(database, record, there, before, free_for, patience, now)
        if token is None:
            self._reserve(database)
            return self._try(database)
        if not token:
            return None
        if queued and self._ticket != queued:
            unlock_byte(database.descriptor, queued)  # the next in line is the first from now on
        self._database = None
        self._backend.keep(request.client.owner, database, self._ticket)
        self._wake.close()
        return Grant(request.name, request.client.owner, token, request.ttl, valid_from, request.holders, index)

    def _look(
        self, sql: sqlite3.Connection, record: Record, before: list[int], now: float
    ) -> tuple[list[Record], float | None]:
        """Who holds it, without those who are proven dead: these are taken out of it; and for how long there has been
        room for us, None if there is none."""
        if record.owner != record_of.SEVERAL:
            free_for = record.free_for(self._ages.age(record, now))
            if free_for is None and record.owner in self._crashed:
                free_for = 0.0
                record_of.write_free(sql, self._backend.host, now)
            return ([record] if free_for is None else []), free_for
        places = several.places(sql, record)
        there = several.running(places, self._ages, now)
        for dead in [place for place in there if place.owner in self._crashed]:
            there.remove(dead)
            until = several.longest(there, self._ages, now)
            several.write_left(sql, dead, self._backend.host, now, there, until)
        if not there:
            return [], min((self._ages.age(place, now) - place.ttl for place in places), default=0.0)
        if len(there) >= there[0].holders:
            return there, None
        # How long there has been room is written nowhere: counted from when we saw it, for the same one before us.
        first = before[0] if before else 0
        if self._stalled[0] != first:
            self._stalled = first, now
        return there, now - self._stalled[1]

    def _room(self, sql: sqlite3.Connection, there: list[Record], before: list[int], free_for: float | None) -> int:
        """How many of those in line may have it now."""
        if free_for is None:
            return 0
        ours = self._request.holders
        if before and (ours == 1 or not several.wish_alike(sql, before, ours)):
            return 1  # for who comes first, and says for how many others
        return ours - len(there)

    def _write_grant(
        self, sql: sqlite3.Connection, database: Database, record: Record, there: list[Record], token: int, now: float
    ) -> int:
        """Our index."""
        request, who = self._request, (self._backend.host, now, os.geteuid(), self._started)
        if request.holders == 1:
            self._draw(database, record)
            record_of.write_grant(sql, request, self._ticket, token, *who)
            if record.owner == record_of.SEVERAL:
                several.clear(sql)
            return 0
        taken = {place.holder_index for place in there}
        index = next(index for index in range(request.holders) if index not in taken)
        # With another byte than the one it queued with, which the next in line waits for.
        self._ticket = self._lock_next(database, max(record.tickets, self._ticket))
        until = several.longest(there, self._ages, now)
        several.write_grant(sql, request, index, self._ticket, token, *who, there, until)
        return index

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
        if not self._ticket:
            self._ticket = self._lock_next(database, record.tickets)

    def _lock_next(self, database: Database, last: int) -> int:
        ticket = last + 1
        while not lock_byte(database.descriptor, ticket):
            ticket += 1  # of a transaction that is being rolled back, or of a file that was restored
        return ticket

    def _plan(
        self,
        database: Database,
        record: Record,
        there: list[Record],
        before: list[int],
        free_for: float | None,
        patience: float,
        now: float,
    ) -> None:
        """Whom to watch and when to look again. Those behind others are woken by the one before them."""
        delay = LOOK_AGAIN * (0.9 + os.urandom(1)[0] / 1275)
        self._wake.target = before[-1] if before else record.ticket
        self._suspects = []
        if free_for is not None:
            delay = min(delay, patience - free_for)
        if free_for is None or self._theirs:
            self._suspects = [
                one for one in there if not one.kept and not byte_is_locked(database.descriptor, one.ticket)
            ]
        several_of = there if not before and record.owner == record_of.SEVERAL else []
        if not before and free_for is None:
            delay = min(delay, *(one.ttl - self._ages.age(one, now) for one in there))
            if self._suspects:
                self._wake.target = 0
                delay = min(delay, LOOK_AGAIN_AFTER_A_CRASH)
        if not self._wake.by_any_of(several_of, database, self._backend.host.namespace):
            delay = min(delay, LOOK_AGAIN_AFTER_A_CRASH)
        self._look_at = self._backend.clock() + max(0.0, delay)

    def wait(self, timeout: float, cancel: int) -> None:
        limit = min(timeout, self._look_at - self._backend.clock())
        if limit <= 0:
            return
        if self._database is None:
            select.select([cancel], [], [], limit)
            return
        self._wake.wait(limit, cancel, self._database)

    def close(self) -> None:
        if self._database is not None:
            try:
                if self._ticket:
                    with self._database.transaction(min(LEAVE, self._timeout)) as sql:
                        record_of.drop_waiter(sql, self._ticket)
            except (DistlockError, Moved):
                pass  # the row is dropped by the next to poll, who finds its byte unlocked
            self._leave_file(self._database)
        self._wake.close()

    def _leave_file(self, database: Database) -> None:
        if self._ticket:
            unlock_byte(database.descriptor, self._ticket)  # a watcher's duplicate would keep it locked
        database.close()
        self._database, self._ticket = None, 0
        self._wake.forget()
        self._forget()
