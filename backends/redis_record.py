"""What is stored of a holder or waiter, as JSON in ASCII, and what an answer of redis_inspect.lua says."""

from __future__ import annotations

import json
from typing import NamedTuple

from .base import Client, LockState, Marked

KEPT = b"kept:"


def encode(client: Client, ttl: float) -> str:
    """argv[0] and host names may hold bytes that are no UTF-8; these texts are for people."""
    texts = {
        name: text.encode(errors="backslashreplace").decode() if isinstance(text, str) else text
        for name, text in client._asdict().items()
    }
    return json.dumps({**texts, "ttl": ttl}, separators=(",", ":"))


class Details(NamedTuple):
    client: Client
    ttl: float
    revoked_by: str | None


def revoked_by(details: bytes) -> str:
    """Of a holder that is told so."""
    found = decode(details)
    return (found and found.revoked_by) or "somebody"


def decode(stored: bytes) -> Details | None:
    """None for what no distlock has written."""
    try:
        told = json.loads(stored)
        client = Client(
            owner=str(told["owner"]),
            host=str(told["host"]),
            pid=int(told["pid"]),
            user=str(told["user"]),
            command=str(told["command"]),
            label=None if told["label"] is None else str(told["label"]),
            since=float(told["since"]),
        )
        by = told.get("revoked")
        return Details(client, float(told["ttl"]), None if by is None else str(by))
    except (ValueError, KeyError, TypeError):
        return None


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
