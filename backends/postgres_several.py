"""What is stored of several holders of one PostgreSQL lock: a row each, and the lock's own row for the group."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from . import postgres_sql as sql
from .base import Holding, LockState
from .client_record import decode, encode
from .postgres_record import operator
from .several import state_of_several

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .base import Client
    from .postgres_link import Row

_GROUP = "several-"


def group(holders: int) -> str:
    """The lock's owner while so many may hold it: to everybody else it is held by somebody."""
    return f"{_GROUP}{holders}"


def group_size(owner: str | None) -> int:
    """How many holders a lock with this owner may have."""
    size = (owner or "").removeprefix(_GROUP)
    return int(size) if size != owner and size.isdigit() else 1


def waiting(client: Client, ttl: float, holders: int) -> str:
    """Details of a waiter. How many it asks for comes last, where SQL finds it: WAITERS_HOLDERS."""
    details = encode(client, ttl)
    return details if holders == 1 else f'{details[:-1]},"holders":{holders}}}'


WAITERS_HOLDERS = r"""coalesce(substring(w.details FROM '"holders":([0-9]+)[}]$')::integer, 1)"""
"""Of a waiter ``w``. Not read as JSON: that would fail at what the database's encoding does not have."""


def statement(file: str, name: str, holders: int, **values: str) -> bytes:
    """``postgres_FILE.sql`` for a plain lock, or that for one of several holders."""
    row = sql.name_bytes(name)
    if holders == 1:
        return sql.statement(file, name=row, **values)
    return sql.statement(
        f"several_{file}",
        name=row,
        places=sql.part("several", name=row),
        holders=str(holders),
        group=sql.text(group(holders)),
        waiters_holders=WAITERS_HOLDERS,
        **values,
    )


class Group(NamedTuple):
    size: int
    holdings: tuple[Holding, ...]
    foreign: bool
    """Held by somebody unknown."""


def groups(rows: Iterable[Row]) -> dict[str, Group]:
    """By name, from postgres_several_inspect.sql."""
    found = {}
    for name, of_lock in groupby(rows, key=lambda row: row[0]):
        holders = list(of_lock)
        holdings = tuple(holding for row in holders if (holding := _holding(row)))
        if name:
            by_name = bytes.fromhex(name).decode(errors="replace")
            found[by_name] = Group(group_size(holders[0][1]), holdings, holders[0][9] == "t")
    return found


def _holding(row: Row) -> Holding | None:
    _, _, index, token, ttl, left, details, kept, revoked_by, _ = row
    holder = decode((details or "").encode())
    if holder is None:
        return None  # no distlock has written it
    return Holding(
        holder_index=int(index or 0),
        token=int(token or 0),
        holder=holder.client,
        ttl=float(ttl or 0),
        expires_in=max(float(left or 0), 0.001),
        kept=kept == "t",
        revoked_by=operator(revoked_by) if revoked_by else None,
    )


def state_of(state: LockState, found: Group | None) -> LockState:
    """Of a lock whose row says that it is held by a group. Looked at a moment later, it may be so no more."""
    if found is not None and found.holdings:
        return state_of_several(state.name, found.size, found.holdings, state.waiters, state.last_success)
    foreign = found is not None and found.foreign
    token = None if foreign else state.token
    return LockState(state.name, foreign, token, None, None, None, state.waiters, state.last_success)
