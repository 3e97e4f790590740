"""What rows of postgres_inspect.sql say."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from .base import LockState, Marked
from .client_record import decode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .postgres_link import Row


def operator(hexadecimal: str) -> str:
    """Who took a lease away."""
    return bytes.fromhex(hexadecimal).decode(errors="backslashreplace")


def states(rows: Iterable[Row], name: str | None = None) -> list[LockState]:
    """A lock each; ``name`` is that of a row without one."""
    return [_state(list(group), name) for _, group in groupby(rows, key=lambda row: row[1])]


def _state(rows: list[Row], asked_for: str | None) -> LockState:
    _, name, held, foreign, token, ttl, left, details, _, started, age, kept, revoked_by, _ = rows[0]
    waiters = [decode(row[8].encode()) for row in rows if row[8]]
    ours = held == "t"
    holder = decode(details.encode()) if ours and details else None
    return LockState(
        name=bytes.fromhex(name).decode(errors="replace") if name else asked_for or "",
        held=ours or foreign == "t",
        # The last token is not a foreign holder's: it has none.
        token=None if foreign == "t" and not ours else int(token or 0) or None,
        holder=holder[0] if holder else None,
        ttl=float(ttl) if ours and ttl else None,
        expires_in=max(float(left), 0.001) if ours and left else None,
        waiters=tuple(waiter[0] for waiter in waiters if waiter),
        last_success=Marked(float(started), float(age)) if started and age else None,
        kept=ours and kept == "t",
        revoked_by=operator(revoked_by) if ours and revoked_by else None,
    )
