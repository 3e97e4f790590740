"""A lock as it is now, for people and programs that ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import local_record as record_of
from .base import SUCCESS, LockState
from .local_boot import Ages, Host
from .local_crash import CrashProof
from .local_database import Database
from .local_queue import byte_is_locked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def look(path: Path, name: str | None, host: Host, clock: Callable[[], float], timeout: float) -> LockState:
    """``name`` None: of any name. Raises FileNotFoundError if there is none, Moved, Unavailable, Refused."""
    if path.is_file():
        from .local_earlier import look as look_at_earlier

        return look_at_earlier(path, name, host, clock, timeout)
    ages = Ages(host, clock)
    database = Database(path, name, host, timeout, to_write=False)
    try:
        with database.transaction(timeout, "BEGIN") as sql:
            now = ages.now()
            record = record_of.read(sql)
            queue = record_of.waiters(sql)
            success = record_of.read_mark(sql, SUCCESS)
            lives = {ticket: byte_is_locked(database.descriptor, ticket) for ticket in (record.ticket, *queue)}
    finally:
        database.close()
    age = ages.age(record, now)
    held = record.free_for(age) is None and (
        bool(record.kept) or lives[record.ticket] or not CrashProof(host).given(record)
    )
    return LockState(
        name=database.name,
        held=held,
        token=record.token,
        holder=record.holder if held else None,
        ttl=record.ttl if held else None,
        expires_in=record.ttl - age if held else None,
        waiters=tuple(client for ticket, client in queue.items() if lives[ticket]),
        last_success=success,
        kept=held and bool(record.kept),
        revoked_by=record.revoked if held else None,
    )
