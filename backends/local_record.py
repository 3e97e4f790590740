"""The rows of a lock database: the lock's record and its queue. Every function runs inside a transaction."""

import sqlite3
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

from .base import SUCCESS, SUCCESS_KEPT, Client, Mark, Marked, Request
from .local_boot import Host

SEVERAL = "several holders"
"""The owner in the lock's row while its holders are in rows of their own (local_several.py). No owner id is like it."""

CLIENT = "owner, host, pid, user, command, label, since"
_RECORD = (
    "token, reserved, reserver, tickets, changes, changed, boot, machine, contained, namespace, uid, started, ticket,"
    " ttl, kept, revoked, " + CLIENT
)


class Record(NamedTuple):
    """The lock's row; the columns are explained in local.sql."""

    token: int
    reserved: int
    reserver: str
    tickets: int
    changes: int
    changed: float
    boot: str
    machine: str
    contained: int
    namespace: str
    uid: int
    started: int
    ticket: int
    ttl: float
    kept: int
    revoked: str | None
    holder: Client
    holders: int = 1
    holder_index: int = 0

    @classmethod
    def of_layout_1(cls, row: Sequence[Any]) -> Self:
        """Of the columns that an earlier distlock had."""
        values = (row[0], 0, "", *row[1:12], 0, None, Client(*row[12:]))
        return cls(*values)

    @property
    def owner(self) -> str:
        return self.holder.owner

    def free_for(self, age: float) -> float | None:
        """For how long the lock has been free, or None while it is held; ``age`` is that of the record."""
        if not self.owner:
            return age
        return age - self.ttl if age >= self.ttl else None

    def next_token(self, host: Host) -> int | None:
        """None if tokens must be reserved first."""
        return self.token + 1 if self.reserver == host.boot and self.token < self.reserved else None


def read(sql: sqlite3.Connection) -> Record:
    row = sql.execute(f"SELECT {_RECORD} FROM lock").fetchone()
    if row is None:
        raise sqlite3.DatabaseError("the lock's record is missing")
    values = (*row[:16], Client(*row[16:]))
    return Record(*values)


def of_place(row: Sequence[Any]) -> Record:
    """One of several holders, of the columns that local_several.py names; without the lock's own counters."""
    index, holders, token, changes, changed, *rest = row
    values = (token, 0, "", 0, changes, changed, *rest[:10], Client(*rest[10:]), holders, index)
    return Record(*values)


def waiters(sql: sqlite3.Connection, up_to: int | None = None) -> dict[int, Client]:
    """Ticket by ticket, in order, the dead ones too; all, or those up to and with a ticket."""
    rows = sql.execute(
        f"SELECT ticket, {CLIENT} FROM waiter WHERE ?1 IS NULL OR ticket <= ?1 ORDER BY ticket", (up_to,)
    )
    return {row[0]: Client(*row[1:]) for row in rows}


def add_waiter(sql: sqlite3.Connection, ticket: int, client: Client) -> None:
    sql.execute("UPDATE lock SET tickets = max(tickets, ?)", (ticket,))
    sql.execute(f"INSERT INTO waiter (ticket, {CLIENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (ticket, *columns(client)))


def drop_waiter(sql: sqlite3.Connection, ticket: int) -> None:
    sql.execute("DELETE FROM waiter WHERE ticket = ?", (ticket,))


def write_reservation(sql: sqlite3.Connection, record: Record, host: Host, count: int) -> None:
    """Above all that were reserved: after a power loss nobody knows which of those were granted."""
    sql.execute("UPDATE lock SET token = ?1, reserved = ?1 + ?2, reserver = ?3", (record.reserved, count, host.boot))


def write_grant(
    sql: sqlite3.Connection, request: Request, ticket: int, token: int, host: Host, now: float, uid: int, started: int
) -> None:
    sql.execute(
        "UPDATE lock SET tickets = max(tickets, ?1), ticket = ?1, token = ?2, changes = changes + 1, changed = ?3,"
        " boot = ?4, machine = ?5, contained = ?6, namespace = ?7, uid = ?8, started = ?9, ttl = ?10,"
        " owner = ?11, host = ?12, pid = ?13, user = ?14, command = ?15, label = ?16, since = ?17, kept = 0,"
        " revoked = NULL",
        (
            *(ticket, token, now, host.boot, host.machine, host.contained, host.namespace, uid, started, request.ttl),
            *columns(request.client._replace(since=time.time())),
        ),
    )


def write_renewal(sql: sqlite3.Connection, host: Host, now: float) -> None:
    sql.execute(
        "UPDATE lock SET changes = changes + 1, changed = ?, boot = ?, machine = ?, contained = ?",
        (now, host.boot, host.machine, host.contained),
    )


def write_free(sql: sqlite3.Connection, host: Host, now: float) -> None:
    """Only name, tokens and counters stay."""
    sql.execute(
        "UPDATE lock SET changes = changes + 1, changed = ?, boot = ?, machine = ?, contained = ?,"
        " namespace = '', uid = 0, started = 0, ticket = 0, ttl = 0,"
        " owner = '', host = '', pid = 0, user = '', command = '', label = NULL, since = 0,"
        " kept = 0, revoked = NULL",
        (now, host.boot, host.machine, host.contained),
    )


def write_kept(sql: sqlite3.Connection, host: Host, now: float, seconds: float) -> None:
    """Nobody's process stands for it any more, so that none can be missed."""
    sql.execute(
        "UPDATE lock SET changes = changes + 1, changed = ?, boot = ?, machine = ?, contained = ?, ttl = ?, kept = 1,"
        " revoked = NULL, namespace = '', started = 0, ticket = 0",
        (now, host.boot, host.machine, host.contained, seconds),
    )


def write_revoked(sql: sqlite3.Connection, by: str) -> None:
    sql.execute("UPDATE lock SET changes = changes + 1, revoked = ?", (by,))


def write_success(sql: sqlite3.Connection, marks: Iterable[Mark]) -> None:
    for mark in marks:
        if mark.slot == SUCCESS:
            sql.execute("UPDATE lock SET succeeded = ?", (time.time() - mark.ago,))


def write_marks(sql: sqlite3.Connection, marks: Iterable[Mark]) -> None:
    """All but the last success."""
    now = time.time()
    rows = [(mark.slot, now - mark.ago, now + mark.keep) for mark in marks if mark.slot != SUCCESS]
    if rows:
        sql.execute("DELETE FROM mark WHERE till <= ?", (now,))
        sql.executemany("INSERT OR REPLACE INTO mark (slot, began, till) VALUES (?, ?, ?)", rows)


def read_mark(sql: sqlite3.Connection, slot: str) -> Marked | None:
    now = time.time()
    if slot == SUCCESS:
        row = sql.execute("SELECT succeeded FROM lock WHERE succeeded > ?", (now - SUCCESS_KEPT,)).fetchone()
    else:
        row = sql.execute("SELECT began FROM mark WHERE slot = ? AND till > ?", (slot, now)).fetchone()
    return None if row is None else Marked(row[0], now - row[0])


def is_marked(sql: sqlite3.Connection) -> bool:
    """Whether any mark is yet to be remembered."""
    now = time.time()
    return (
        read_mark(sql, SUCCESS) is not None
        or sql.execute("SELECT 1 FROM mark WHERE till > ? LIMIT 1", (now,)).fetchone() is not None
    )


def columns(client: Client) -> tuple[object, ...]:
    """argv[0] and host names may hold bytes that are no UTF-8, which SQLite refuses; these texts are for people."""
    return tuple(text.encode(errors="backslashreplace").decode() if isinstance(text, str) else text for text in client)
