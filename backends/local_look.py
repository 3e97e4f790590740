"""A lock as it is now, for people and programs that ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import local_record as record_of
from . import local_several as several
from .base import SUCCESS, DistlockError, Holding, LockState
from .local_boot import Ages, Host
from .local_crash import CrashProof
from .local_database import Database
from .local_files import Moved
from .local_queue import byte_is_locked
from .several import state_of_several

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from .local_record import Record


def look_at_all(paths: Iterable[Path], host: Host, clock: Callable[[], float], timeout: float) -> Iterator[LockState]:
    """Raises the first error behind the last lock: Unavailable, Refused."""
    problem: DistlockError | None = None
    for path in paths:
        try:
            yield look(path, None, host, clock, timeout)
        except (FileNotFoundError, Moved):
            continue
        except DistlockError as error:
            problem = problem or error
    if problem is not None:
        raise problem


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
            places = several.places(sql, record)
            queue = record_of.waiters(sql)
            success = record_of.read_mark(sql, SUCCESS)
            tickets = [holder.ticket for holder in places or [record]]
            lives = {ticket: byte_is_locked(database.descriptor, ticket) for ticket in (*tickets, *queue)}
    finally:
        database.close()
    proof = CrashProof(host)

    def holds(one: Record) -> bool:
        return one.free_for(ages.age(one, now)) is None and (
            bool(one.kept) or lives[one.ticket] or not proof.given(one)
        )

    waiters = tuple(client for ticket, client in queue.items() if lives[ticket])
    holders = [one for one in places or [record] if one.owner != record_of.SEVERAL and holds(one)]
    if places and holders:
        holdings = [
            Holding(
                holder_index=one.holder_index,
                token=one.token,
                holder=one.holder,
                ttl=one.ttl,
                expires_in=one.ttl - ages.age(one, now),
                kept=bool(one.kept),
                revoked_by=one.revoked,
            )
            for one in holders
        ]
        return state_of_several(database.name, holders[0].holders, holdings, waiters, success)
    held = holders[0] if holders else None
    return LockState(
        name=database.name,
        held=held is not None,
        token=record.token,
        holder=held.holder if held else None,
        ttl=held.ttl if held else None,
        expires_in=held.ttl - ages.age(held, now) if held else None,
        waiters=waiters,
        last_success=success,
        kept=held is not None and bool(held.kept),
        revoked_by=held.revoked if held else None,
    )
