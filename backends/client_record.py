"""What a program tells of itself where it holds a lock or waits for one: a Client among other things, as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from .base import Client

if TYPE_CHECKING:
    from collections.abc import Mapping

UNREADABLE = (ValueError, KeyError, TypeError)
"""Raised by ``client_in``, and by whatever else is made of JSON that no distlock has written."""


def as_json(record: Mapping[str, object]) -> str:
    """argv[0] and host names may hold bytes that are no UTF-8; these texts are for people."""
    readable = {
        name: text.encode(errors="backslashreplace").decode() if isinstance(text, str) else text
        for name, text in record.items()
    }
    return json.dumps(readable, separators=(",", ":"))


def client_in(told: Any) -> Client:
    """Raises UNREADABLE."""
    return Client(
        owner=str(told["owner"]),
        host=str(told["host"]),
        pid=int(told["pid"]),
        user=str(told["user"]),
        command=str(told["command"]),
        label=None if told["label"] is None else str(told["label"]),
        since=float(told["since"]),
    )


class Details(NamedTuple):
    """What Redis and PostgreSQL keep of a holder or waiter beside their own columns and keys."""

    client: Client
    ttl: float
    revoked_by: str | None = None


def encode(client: Client, ttl: float) -> str:
    return as_json({**client._asdict(), "ttl": ttl})


def decode(stored: bytes) -> Details | None:
    """None for what no distlock has written."""
    try:
        told = json.loads(stored)
        client, by = client_in(told), told.get("revoked")
        return Details(client, float(told["ttl"]), None if by is None else str(by))
    except UNREADABLE:
        return None
