"""What the scripts store of holders and waiters, and what an answer of redis_inspect.lua says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import Holding, LockState, Marked
from .client_record import as_json, decode
from .several import state_of_several

if TYPE_CHECKING:
    from .base import Client, Request

KEPT = b"kept:"
_FIXED = 7
"""Fields before those of each of several holders and of the waiters."""


def details(request: Request, since: float) -> str:
    """The number of holders stands last, where the scripts look for it."""
    told = {**request.client._replace(since=since)._asdict(), "ttl": request.ttl}
    return as_json(told | {"holders": request.holders} if request.holders > 1 else told)


def revoked_by(stored: bytes) -> str:
    """Of a holder that is told so."""
    found = decode(stored)
    return (found and found.revoked_by) or "somebody"


def state(name: str, answer: list[bytes | int]) -> LockState:
    kind, value, left, token, stored, started, now = answer[:_FIXED]
    success = Marked(int(started) / 1e6, (int(now) - int(started)) / 1e6) if started else None
    if kind == b"several":
        waiting = _FIXED + 2 * int(left)
        holdings = [_holding(*answer[at : at + 2]) for at in range(_FIXED, waiting, 2)]
        if known := [holding for holding in holdings if holding]:
            return state_of_several(name, int(value), known, _waiters(answer[waiting:]), success)
        # Somebody holds it, and nobody can read who.
        return LockState(name, True, None, None, None, None, _waiters(answer[waiting:]), success)
    known_holder = decode(stored) if isinstance(stored, bytes) else None
    kept = isinstance(value, bytes) and value.startswith(KEPT)
    owner = value.removeprefix(KEPT) if isinstance(value, bytes) else value
    if known_holder and known_holder.client.owner.encode() != owner:
        known_holder = None  # of a holder that was overwritten
    held = kind == b"held"
    left = int(left)
    return LockState(
        name=name,
        held=held,
        # The last token is not a foreign holder's: it has none.
        token=None if held and not known_holder else int(token) or None,
        holder=known_holder.client if held and known_holder else None,
        ttl=known_holder.ttl if held and known_holder else None,
        expires_in=max(left, 1) / 1000 if held and left >= 0 else None,
        waiters=_waiters(answer[_FIXED:]),
        kept=kept and known_holder is not None,
        revoked_by=known_holder.revoked_by if held and known_holder else None,
        last_success=success,
    )


def _waiters(answer: list[bytes | int]) -> tuple[Client, ...]:
    waiters = [decode(waiter) for waiter in answer if isinstance(waiter, bytes)]
    return tuple(waiter.client for waiter in waiters if waiter)


def _holding(left: bytes | int, record: bytes | int) -> Holding | None:
    """None if nobody can read who it is."""
    parts = record.split(b" ", 3) if isinstance(record, bytes) else []
    known = decode(parts[3]) if len(parts) == 4 else None
    if known is None:
        return None
    index, token, how, _ = parts
    return Holding(
        holder_index=int(index),
        token=int(token),
        holder=known.client,
        ttl=known.ttl,
        expires_in=max(int(left), 1) / 1e6,
        kept=how == b"kept",
        revoked_by=known.revoked_by,
    )
