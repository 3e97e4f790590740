"""What a PostgreSQL is, and what of its settings breaks locks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import postgres_sql as sql
from .probe import Finding, Probe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .postgres_link import Link, Row

_FEW = 10
"""Connections that should be left: one to renew each lease whose connection was cut, and some for those who come."""


def probe(link: Link, until: float, *, session_is_the_lock: bool) -> Probe:
    """``session_is_the_lock``: advisory locks, which end with their session. Raises Unavailable, Refused."""
    link.connect(until)
    before = time.time()
    (told,) = link.ask(sql.statement("probe"), until)
    after = time.time()
    (settings,) = link.ask(sql.statement("settings"), until)
    pooled = told[7] != str(link.pid)
    server = ", ".join(
        [
            f"PostgreSQL {(told[0] or '').split(' ')[0]}",
            "a standby, or read-only" if told[1] == "t" else "primary",
            *(["through a pooler"] if pooled else []),
        ]
    )
    found = (
        *_of_role(told),
        *_of_disk(told, settings),
        *_of_standbys(settings),
        *_of_sessions(told, session_is_the_lock=session_is_the_lock),
        *(_of_pooler(session_is_the_lock=session_is_the_lock) if pooled else ()),
    )
    return Probe(server, float(told[2] or 0) - (before + after) / 2, found)


def _of_role(told: Row) -> Iterator[Finding]:
    if told[1] == "t":
        yield Finding(
            "No lock can be had here: nothing can be written.",
            "pg_is_in_recovery() or transaction_read_only",
            "Name the primary in the URL, or all hosts of the group.",
        )


def _of_disk(told: Row, settings: Row) -> Iterator[Finding]:
    fsync, full_page_writes, unlogged, *_ = settings
    if fsync != "on":
        yield Finding(
            "A crash of the server's host can forget who holds a lock, which is granted a second time then.",
            "fsync = off",
            "Set fsync = on.",
        )
    if full_page_writes != "on":
        yield Finding(
            "A crash of the server's host can damage the tables, and forget who holds a lock.",
            "full_page_writes = off",
            "Set full_page_writes = on.",
        )
    if unlogged == "t":
        yield Finding(
            "A crash of the server empties a table of distlock, and forgets who holds a lock.",
            "a table distlock_* is UNLOGGED",
            "ALTER TABLE … SET LOGGED.",
        )
    if told[3] == "off":
        yield Finding(
            "A crash can undo what a job has committed here, though its lock and its success are on disk: for those"
            " distlock waits, whatever the setting.",
            "synchronous_commit = off",
            "Set synchronous_commit = on, at least for the jobs.",
        )


def _of_standbys(settings: Row) -> Iterator[Finding]:
    *_, asynchronous, unseen = settings
    if asynchronous:
        yield Finding(
            "A failover to a standby that is behind can forget who holds a lock, which is granted a second time then.",
            f"pg_stat_replication: sync_state of {asynchronous}",
            "Name the standbys that may take over in synchronous_standby_names.",
        )
    if unseen != "0":
        yield Finding(
            "Whether standbys are synchronous could not be looked at: a failover may forget who holds a lock.",
            f"pg_stat_replication: {unseen} rows without a sync_state that this role may see",
            "GRANT pg_monitor to the role, or have doctor run by one that has it.",
        )


def _of_sessions(told: Row, *, session_is_the_lock: bool) -> Iterator[Finding]:
    allowed, used, idle = int(told[4] or 0), int(told[5] or 0), int(told[6] or 0)
    if allowed - used < _FEW:
        yield Finding(
            "A lease whose connection is cut ends if it finds no place for another one, and who comes then gets no"
            " lock.",
            f"{used} of {allowed} connections are used (max_connections without those reserved)",
            "Raise max_connections, or put a pooler in between (not for advisory locks).",
        )
    if idle > 0:
        yield Finding(
            "An advisory lock is lost, and its command ended, when its session is idle for so long: between renewals,"
            " which come each third of the TTL."
            if session_is_the_lock
            else "Sessions that are idle between renewals, each third of the TTL, are ended: holders connect anew each"
            " time, and hear of nothing in between.",
            f"idle_session_timeout = {idle} ms",
            "Set idle_session_timeout = 0 for the role (ALTER ROLE … SET), or well above a third of the longest TTL.",
        )


def _of_pooler(*, session_is_the_lock: bool) -> Iterator[Finding]:
    yield Finding(
        "Every advisory lock is refused (78): it would be another client's with the next statement."
        if session_is_the_lock
        else "Waiters are not woken by a release, but ask once a second, and a holder whose lease is taken away hears"
        " of it with its next renewal.",
        "pg_backend_pid() is not the pid told at the login",
        "Connect to the server itself, at least for these jobs."
        if session_is_the_lock
        else "Connect to the server itself where that is too slow.",
    )
