"""The journal: which runs there were on this host, for this user.

Nothing depends on it. A failure to write it is a line with -v; it is written after the lock was given back, without
waiting for a disk; and it keeps its size: so many runs, of so many days, and in any case below LARGEST. What is dropped
stays counted in the sums.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import NamedTuple

from .backends.base import Unavailable
from .measures import Run
from .sums import Sums

FILE = "journal.db"
LARGEST = 32 << 20
LAYOUT = 1
MOST_LOCKS = 1000
"""With sums of their own."""
OTHER_LOCKS = "{other}"
_LONGEST_TEXT = 1000
_PAGE = 4096
_BUSY = 2.0
_KINDS: dict[str, type | UnionType] = {
    **dict.fromkeys(("name", "backend", "owner", "outcome"), str),
    **dict.fromkeys(("label", "reason"), str | None),
    **dict.fromkeys(("ttl", "asked_at", "waited", "ended_at"), float),
    **dict.fromkeys(("granted_at", "held", "slack", "mean", "longest", "closest"), float | None),
    **dict.fromkeys(("pid", "renewals", "failures"), int),
    **dict.fromkeys(("token", "exit_code"), int | None),
}
"""What SQLite keeps in the columns of a run, unless the file is damaged: it checks no types."""
_ROOM = 1 << 20
"""Bytes that have to be free: locks, and the lease files of jobs, may be kept on the same disk."""


class Limits(NamedTuple):
    """How much is kept of single runs."""

    runs: int = 10_000
    seconds: float = 90 * 86400.0


class Journal:
    """One connection. Raises Unavailable for whatever is wrong with the file."""

    def __init__(self, path: Path, limits: Limits | None = None, busy: float = _BUSY) -> None:
        self.path = path
        self._limits = limits or Limits()
        self._inode = 0
        self._busy = busy

    # -- writing -----------------------------------------------------------------------------------------------------

    def add(self, run: Run) -> None:
        """A damaged journal is put aside and begun anew."""
        self._write(lambda sql: self._add(sql, run, time.time()))

    def add_refusal(self, resource: str) -> None:
        """A write of a late holder that a resource has refused."""

        def count(sql: sqlite3.Connection) -> None:
            known = sql.execute("SELECT 1 FROM refusal WHERE resource = ?", (resource,)).fetchone()
            (many,) = sql.execute("SELECT count(*) FROM refusal").fetchone()
            name = resource if known or many < MOST_LOCKS else OTHER_LOCKS
            sql.execute(
                "INSERT INTO refusal VALUES (?, 1) ON CONFLICT (resource) DO UPDATE SET count = count + 1", (name,)
            )

        self._write(count)

    def _write(self, change: Callable[[sqlite3.Connection], None]) -> None:
        try:
            self._in_transaction(change)
        except sqlite3.Error as error:
            code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
            try:
                if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                    self._put_aside()
                elif code == sqlite3.SQLITE_FULL:
                    self._in_transaction(_drop_half)
                else:
                    raise self._failure(error) from error
                self._in_transaction(change)
            except sqlite3.Error as again:
                raise self._failure(again) from again
        except OSError as error:
            raise self._failure(error) from error

    def _in_transaction(self, change: Callable[[sqlite3.Connection], None]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        room = os.statvfs(self.path.parent)
        if room.f_bavail * room.f_frsize < _ROOM:
            raise OSError(errno.ENOSPC, "the last space on the disk is left to the locks")
        with self._opened() as sql:
            sql.execute("BEGIN IMMEDIATE")
            if not self._layout(sql):
                for statement in _schema().split(";\n"):
                    sql.execute(statement)
            elif not _has_index(sql):
                sql.execute("ALTER TABLE run ADD COLUMN holder_index INTEGER")  # which earlier releases do not mind
            change(sql)
            sql.execute("COMMIT")

    def _add(self, sql: sqlite3.Connection, run: Run, now: float) -> None:
        renewals = run.renewals
        values = {key: value for key, value in run._asdict().items() if key != "renewals"} | {
            "ended_at": now,
            "renewals": renewals.latencies.count if renewals else 0,
            "failures": renewals.failures if renewals else 0,
            "mean": renewals.mean if renewals else None,
            "longest": renewals.longest if renewals and renewals.latencies.count else None,
            "closest": renewals.closest if renewals else None,
        }
        texts = {key: _clean(value) if isinstance(value, str) else value for key, value in values.items()}
        columns, marks = ", ".join(texts), ", ".join("?" * len(texts))
        cursor = sql.execute(f"INSERT INTO run ({columns}) VALUES ({marks})", tuple(texts.values()))
        self._count(sql, run, now)
        sql.execute("DELETE FROM run WHERE id <= ?", ((cursor.lastrowid or 0) - self._limits.runs,))
        # The oldest come first; a few at a time, so that no run pays for all.
        sql.execute(
            "DELETE FROM run WHERE id IN (SELECT id FROM run ORDER BY id LIMIT 20) AND ended_at < ?",
            (now - self._limits.seconds,),
        )

    def _count(self, sql: sqlite3.Connection, run: Run, now: float) -> None:
        where = (_clean(run.name), _clean(run.backend))
        row = sql.execute("SELECT counted FROM sums WHERE name = ? AND backend = ?", where).fetchone()
        if row is None and sql.execute("SELECT count(*) FROM sums").fetchone()[0] >= MOST_LOCKS:
            where = (OTHER_LOCKS, "")
            row = sql.execute("SELECT counted FROM sums WHERE name = ? AND backend = ?", where).fetchone()
        sums = Sums(row[0]) if row else Sums()
        sums.add(run, now)
        sql.execute("INSERT OR REPLACE INTO sums (name, backend, counted) VALUES (?, ?, ?)", (*where, sums.stored()))

    # -- reading -----------------------------------------------------------------------------------------------------

    def runs(self, name: str | None = None, since: float = 0.0) -> list[sqlite3.Row]:
        """Those that ended at or after ``since``, in the order of their ends."""
        where = "ended_at >= ? AND (? IS NULL OR name = ?)"
        rows = self._read(f"SELECT * FROM run WHERE {where} ORDER BY id", (since, name, name))
        if any(not isinstance(row[column], kind) for row in rows for column, kind in _KINDS.items()):
            raise self._failure(ValueError("a row of it is damaged"))
        return rows

    def sums(self) -> dict[tuple[str, str], Sums]:
        """By name of the lock and backend."""
        rows = self._read("SELECT name, backend, counted FROM sums ORDER BY name, backend")
        return {(row["name"], row["backend"]): Sums(row["counted"]) for row in rows}

    def refusals(self) -> dict[str, int]:
        """By resource."""
        rows = self._read("SELECT resource, count FROM refusal ORDER BY resource")
        return {row["resource"]: row["count"] for row in rows}

    def _read(self, question: str, values: tuple[object, ...] = ()) -> list[sqlite3.Row]:
        try:
            if not self.path.exists():
                return []
            with self._opened() as sql:
                sql.execute("BEGIN")
                return sql.execute(question, values).fetchall() if self._layout(sql) else []
        except (sqlite3.Error, OSError) as error:
            raise self._failure(error) from error

    # -- the file ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        before = os.umask(0o077)
        try:
            sql = sqlite3.connect(self.path, timeout=self._busy, isolation_level=None, check_same_thread=False)
        finally:
            os.umask(before)
        try:
            sql.row_factory = sqlite3.Row
            sql.text_factory = _text
            self._inode = self.path.stat().st_ino
            # No disk is waited for: a power cut may take the last runs, or, at worst, the journal.
            sql.execute("PRAGMA synchronous = OFF")
            sql.execute("PRAGMA journal_mode = PERSIST")
            sql.execute(f"PRAGMA max_page_count = {LARGEST // _PAGE}")
            yield sql
        finally:
            sql.close()

    def _layout(self, sql: sqlite3.Connection) -> bool:
        """Whether it has tables; new files have none. Raises Unavailable for those of another version."""
        (version,) = sql.execute("PRAGMA user_version").fetchone()
        if version not in (0, LAYOUT):
            raise Unavailable(f"{self.path} has the unknown layout version {version}; this program knows {LAYOUT}")
        return bool(version == LAYOUT)

    def _put_aside(self) -> None:
        if self.path.stat().st_ino != self._inode:
            return  # somebody else has begun a new one since
        os.replace(self.path, self.path.with_suffix(".damaged"))
        self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)

    def _failure(self, error: Exception) -> Unavailable:
        reason = (error.strerror or "") if isinstance(error, OSError) else str(error)
        return Unavailable(f"the journal {self.path}: {reason}", permanent=True)


def _text(stored: bytes) -> str:
    """Whatever has happened to the file."""
    return stored.decode(errors="replace")


def _schema() -> str:
    return Path(__file__).with_name("journal.sql").read_text(encoding="utf-8")


def _has_index(sql: sqlite3.Connection) -> bool:
    return any(column["name"] == "holder_index" for column in sql.execute("PRAGMA table_info(run)"))


def _drop_half(sql: sqlite3.Connection) -> None:
    sql.execute("DELETE FROM run WHERE id <= (SELECT (min(id) + max(id)) / 2 FROM run)")


def _clean(text: str) -> str:
    """Bytes that are no UTF-8, which SQLite refuses, become escapes; names stay whole, the rest is bounded."""
    return text.encode(errors="backslashreplace").decode()[:_LONGEST_TEXT]
