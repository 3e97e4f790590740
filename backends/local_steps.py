"""What each step of a holder or an operator does to the rows of a lock. Every method runs inside a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import local_record as record_of
from . import local_several as several
from .base import Grant, LeaseLost, Mark, Revoked
from .local_boot import Ages, Host

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from .local_record import Record


class Steps:
    """One step each; made anew for each, since the age of a record is watched from then on."""

    def __init__(self, host: Host, clock: Callable[[], float]) -> None:
        self._host = host
        self._ages = Ages(host, clock)

    def renew(self, sql: sqlite3.Connection, grant: Grant) -> float:
        """The TTL that begins anew. Raises LeaseLost, Revoked."""
        now = self._ages.now()
        record, places = self._own(sql, grant, now)
        if record.revoked is not None:
            raise Revoked(f"an operator released it: {record.revoked}")
        if places:
            until = max(record.ttl, several.longest(places, self._ages, now))
            several.write_renewal(sql, record, self._host, now, until)
        else:
            record_of.write_renewal(sql, self._host, now)
        return record.ttl

    def release(self, sql: sqlite3.Connection, grant: Grant, marks: tuple[Mark, ...], keep_for: float) -> None:
        now = self._ages.now()
        record, places = self._of_owner(sql, grant.owner)
        if record is None or record.kept:
            return
        if places:
            others = self._others(places, record, now)
            until = several.longest(others, self._ages, now)
            if keep_for > 0:
                several.write_kept(sql, record, self._host, now, keep_for, until)
            else:
                several.write_left(sql, record, self._host, now, others, until)
        elif keep_for > 0:
            record_of.write_kept(sql, self._host, now, keep_for)
        else:
            record_of.write_free(sql, self._host, now)
        record_of.write_success(sql, marks)
        record_of.write_marks(sql, marks)

    def mark(self, sql: sqlite3.Connection, grant: Grant, mark: Mark) -> None:
        """Raises LeaseLost."""
        self._own(sql, grant, self._ages.now())
        record_of.write_success(sql, (mark,))
        record_of.write_marks(sql, (mark,))

    def revoke(self, sql: sqlite3.Connection, token: int | None, owner: str | None, by: str, at_once: bool) -> bool:
        lock, now = record_of.read(sql), self._ages.now()
        places = several.places(sql, lock)
        for record in places or [lock]:
            is_meant = record.owner == owner if token is None else record.token == token
            if not record.owner or not is_meant or record.free_for(self._ages.age(record, now)) is not None:
                continue
            if places and (at_once or record.kept):
                others = self._others(places, record, now)
                several.write_left(sql, record, self._host, now, others, several.longest(others, self._ages, now))
            elif places:
                several.write_revoked(sql, record, by)
            elif at_once or record.kept:
                record_of.write_free(sql, self._host, now)
            else:
                record_of.write_revoked(sql, by)
            return True
        return False

    def _others(self, places: list[Record], record: Record, now: float) -> list[Record]:
        there = several.running(places, self._ages, now)
        return [place for place in there if place.holder_index != record.holder_index]

    def _of_owner(self, sql: sqlite3.Connection, owner: str) -> tuple[Record | None, list[Record]]:
        """Its record, and all places if the lock is for several."""
        lock = record_of.read(sql)
        places = several.places(sql, lock)
        return next((one for one in places or [lock] if one.owner == owner), None), places

    def _own(self, sql: sqlite3.Connection, grant: Grant, now: float) -> tuple[Record, list[Record]]:
        record, places = self._of_owner(sql, grant.owner)
        if record is None or record.kept:
            raise LeaseLost("it went to somebody else or was given back")
        if record.free_for(self._ages.age(record, now)) is not None:
            raise LeaseLost("it ran out before it was renewed")
        return record, places
