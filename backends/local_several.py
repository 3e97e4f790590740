"""The holders of a local lock that several may have at once (local_several.sql). Functions run inside a transaction."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from . import local_record as record_of
from .local_record import CLIENT, SEVERAL, Record

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from .base import Client, Request
    from .local_boot import Ages, Host

_PLACE = (
    "holder_index, holders, token, changes, changed, boot, machine, contained, namespace, uid, started, ticket, ttl,"
    " kept, revoked, " + CLIENT
)


@cache
def _schema() -> str:
    return Path(__file__).with_name("local_several.sql").read_text(encoding="utf-8")


def places(sql: sqlite3.Connection, lock: Record) -> list[Record]:
    """All rows, by index, those whose lease has run out too; none of a plain lock."""
    if lock.owner != SEVERAL:
        return []
    rows = sql.execute(f"SELECT {_PLACE} FROM place ORDER BY holder_index").fetchall()
    return [record_of.of_place(row) for row in rows]


def running(places: Iterable[Record], ages: Ages, now: float) -> list[Record]:
    return [place for place in places if place.free_for(ages.age(place, now)) is None]


def longest(places: Iterable[Record], ages: Ages, now: float) -> float:
    """Seconds until the last of these leases ends."""
    return max((place.ttl - ages.age(place, now) for place in places), default=0.0)


def write_grant(
    sql: sqlite3.Connection,
    request: Request,
    index: int,
    ticket: int,
    token: int,
    host: Host,
    now: float,
    uid: int,
    started: int,
    others: Sequence[Record],
    until: float,
) -> None:
    """A place beside ``others``, the last of whose leases ends in ``until`` seconds; all other rows go."""
    _make_tables(sql)
    there = {other.holder_index for other in others}
    for (gone,) in sql.execute("SELECT holder_index FROM place").fetchall():
        if gone not in there:
            sql.execute("DELETE FROM place WHERE holder_index = ?", (gone,))
    sql.execute("UPDATE lock SET tickets = max(tickets, ?), token = max(token, ?)", (ticket, token))
    _write_lock(sql, host, now, max(until, request.ttl))
    client: Client = request.client._replace(since=time.time())
    sql.execute(
        f"INSERT INTO place ({_PLACE})"
        " SELECT ?1, ?2, ?3, changes, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 0, NULL, ?13, ?14, ?15, ?16, ?17, ?18, ?19"
        " FROM lock",
        (
            *(index, request.holders, token, now, host.boot, host.machine, host.contained, host.namespace, uid),
            *(started, ticket, request.ttl, *record_of.columns(client)),
        ),
    )


def write_renewal(sql: sqlite3.Connection, place: Record, host: Host, now: float, until: float) -> None:
    _write_lock(sql, host, now, until)
    sql.execute(
        "UPDATE place SET changes = (SELECT changes FROM lock), changed = ?, boot = ?, machine = ?, contained = ?"
        " WHERE holder_index = ?",
        (now, host.boot, host.machine, host.contained, place.holder_index),
    )


def write_kept(sql: sqlite3.Connection, place: Record, host: Host, now: float, seconds: float, until: float) -> None:
    """As of a plain lock: nobody's process stands for it any more."""
    write_renewal(sql, place, host, now, max(until, seconds))
    sql.execute(
        "UPDATE place SET ttl = ?, kept = 1, revoked = NULL, namespace = '', started = 0, ticket = 0"
        " WHERE holder_index = ?",
        (seconds, place.holder_index),
    )


def write_revoked(sql: sqlite3.Connection, place: Record, by: str) -> None:
    sql.execute("UPDATE lock SET changes = changes + 1")
    sql.execute("UPDATE place SET revoked = ? WHERE holder_index = ?", (by, place.holder_index))


def write_left(
    sql: sqlite3.Connection, place: Record, host: Host, now: float, others: list[Record], until: float
) -> None:
    """The place is free, and with it the lock if there are no others."""
    sql.execute("DELETE FROM place WHERE holder_index = ?", (place.holder_index,))
    if others:
        _write_lock(sql, host, now, until)
    else:
        sql.execute("DELETE FROM place")
        record_of.write_free(sql, host, now)


def write_wish(sql: sqlite3.Connection, ticket: int, holders: int) -> None:
    """What a waiter says; one without a row wants the lock alone."""
    _make_tables(sql)
    sql.execute("DELETE FROM wish WHERE ticket NOT IN (SELECT ticket FROM waiter)")
    sql.execute("INSERT OR REPLACE INTO wish (ticket, holders) VALUES (?, ?)", (ticket, holders))


def wish_alike(sql: sqlite3.Connection, tickets: Sequence[int], holders: int) -> bool:
    _make_tables(sql)
    rows = sql.execute("SELECT ticket FROM wish WHERE holders = ?", (holders,))
    return {row[0] for row in rows}.issuperset(tickets)


def _make_tables(sql: sqlite3.Connection) -> None:
    for statement in _schema().split(";"):
        sql.execute(statement)


def clear(sql: sqlite3.Connection) -> None:
    """A plain grant follows: the rows mean nothing any more."""
    sql.execute("DELETE FROM place")


def _write_lock(sql: sqlite3.Connection, host: Host, now: float, ttl: float) -> None:
    """Without a start time, so that nobody takes it for the record of one process that crashed."""
    sql.execute(
        "UPDATE lock SET changes = changes + 1, changed = ?1, boot = ?2, machine = ?3, contained = ?4, ttl = ?5,"
        " owner = ?6, namespace = '', uid = 0, started = 0, ticket = 0, host = '', pid = 0, user = '', command = ?6,"
        " label = NULL, since = ?7, kept = 0, revoked = NULL",
        (now, host.boot, host.machine, host.contained, ttl, SEVERAL, time.time()),
    )
