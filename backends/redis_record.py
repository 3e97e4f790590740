"""What an answer of redis_inspect.lua says."""

from __future__ import annotations

from .base import LockState, Marked
from .client_record import decode

KEPT = b"kept:"


def revoked_by(details: bytes) -> str:
    """Of a holder that is told so."""
    found = decode(details)
    return (found and found.revoked_by) or "somebody"


def state(name: str, answer: list[bytes | int]) -> LockState:
    kind, value, left, token, details, started, now = answer[:7]
    waiters = [decode(waiter) for waiter in answer[7:] if isinstance(waiter, bytes)]
    known = decode(details) if isinstance(details, bytes) else None
    kept = isinstance(value, bytes) and value.startswith(KEPT)
    if known and known.client.owner.encode() != (value.removeprefix(KEPT) if isinstance(value, bytes) else value):
        known = None  # of a holder that was overwritten
    held = kind == b"held"
    left = int(left)
    return LockState(
        name=name,
        held=held,
        # The last token is not a foreign holder's: it has none.
        token=None if held and not known else int(token) or None,
        holder=known.client if held and known else None,
        ttl=known.ttl if held and known else None,
        expires_in=max(left, 1) / 1000 if held and left >= 0 else None,
        waiters=tuple(waiter.client for waiter in waiters if waiter),
        kept=kept and known is not None,
        revoked_by=known.revoked_by if held and known else None,
        last_success=Marked(int(started) / 1e6, (int(now) - int(started)) / 1e6) if started else None,
    )
