"""What is stored, and under which paths: a folder a lock with its last token, in it the queue's nodes, each with JSON
in ASCII. The names of the nodes and their order are those of kazoo's Lock."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from .base import Client, Unavailable

VERSION = 1
MARK = "__lock__"
SUCCESS = "success"
"""Beside the queue's nodes: written when a run has succeeded, which the server stamps."""
_CONTENDER = re.compile(r"__r?lock__(\d{10})\Z")  # __rlock__ is kazoo's ReadLock
_ROOT = "/distlock"


class Paths:
    """Of one ensemble, below its chroot."""

    def __init__(self, chroot: str) -> None:
        self.clock = f"{chroot}{_ROOT}/clock-"
        """Beginning of a node that lives for one question: when the server made it."""
        self.locks = f"{chroot}{_ROOT}/lock"

    def folder(self, name: str) -> str:
        return f"{self.locks}/{encoded(name)}"


def encoded(name: str) -> str:
    """Every byte but ``A-Za-z0-9._-`` as %XX. ``.`` and ``..`` are no names for ZooKeeper."""
    # quote leaves ~ alone, which is one byte more than we do.
    return name.replace(".", "%2E") if name in (".", "..") else quote(name, safe="").replace("~", "%7E")


def decoded(node: str) -> str | None:
    """The lock's name; None for what is none of ours."""
    try:
        name = unquote(node, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if encoded(name) == node else None


def in_order(nodes: list[str]) -> list[str]:
    """Those that take part in the queue, first come first; the holder is the first."""
    matches = filter(None, map(_CONTENDER.search, nodes))
    return [node for _, node in sorted((match[1], match.string) for match in matches)]


class Entry(NamedTuple):
    """What a distlock says of itself in its node."""

    client: Client
    ttl: float
    beat: float | None
    """A waiter writes its node anew at least this often, in seconds; None for a holder, and for who has just come."""
    session: bytes
    """The password of the session, by which another process takes the lease over. It is no secret to anybody who can
    read the node: servers compute it from the session's number, with a constant of their source code."""


def encode(entry: Entry) -> bytes:
    """argv[0] and host names may hold bytes that are no UTF-8; these texts are for people."""
    told: dict[str, Any] = {"version": VERSION}
    for name, value in entry.client._asdict().items():
        told[name] = value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
    told.update(ttl=entry.ttl, beat=entry.beat, session=entry.session.hex())
    return _encoded(told)


def decode(stored: bytes | None, where: str) -> Entry | None:
    """None for what no distlock has written. Raises Unavailable for a layout that this program does not know."""
    told = _told(stored, where)
    if told is None:
        return None
    try:
        client = Client(
            owner=str(told["owner"]),
            host=str(told["host"]),
            pid=int(told["pid"]),
            user=str(told["user"]),
            command=str(told["command"]),
            label=None if told["label"] is None else str(told["label"]),
            since=float(told["since"]),
        )
        beat = None if told["beat"] is None else float(told["beat"])
        return Entry(client, float(told["ttl"]), beat, bytes.fromhex(told["session"]))
    except (ValueError, KeyError, TypeError):
        return None


def encode_token(token: int) -> bytes:
    return _encoded({"version": VERSION, "token": token})


def encode_success(ran_for: float) -> bytes:
    return _encoded({"version": VERSION, "ran_for": ran_for})


def ran_for(stored: bytes | None, where: str) -> float | None:
    """How long before it was written a successful run had started. Raises Unavailable for an unknown layout."""
    told = _told(stored, where)
    found = told.get("ran_for") if told else None
    return float(found) if isinstance(found, (int, float)) else None


def _encoded(told: dict[str, Any]) -> bytes:
    return json.dumps(told, separators=(",", ":")).encode("ascii")


def last_token(stored: bytes | None, where: str) -> int | None:
    """What the folder of a lock says. None in a new one, or one that kazoo has made. Raises Unavailable for anything
    else that is no record of ours: it may be another layout."""
    if not stored:
        return None
    told = _told(stored, where)
    if told is None or not isinstance(told.get("token"), int):
        raise _unknown(stored, where)
    return int(told["token"])


def _told(stored: bytes | None, where: str) -> dict[str, Any] | None:
    try:
        told = json.loads(stored or b"")
    except ValueError:
        return None
    if not isinstance(told, dict) or "version" not in told:
        return None
    if told["version"] != VERSION:
        raise _unknown(stored or b"", where)
    return told


def _unknown(stored: bytes, where: str) -> Unavailable:
    shown = stored.decode(errors="backslashreplace")[:40]
    return Unavailable(f"{where}: {shown!r} is written in a layout that this program does not know", permanent=True)
