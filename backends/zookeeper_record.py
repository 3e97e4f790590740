"""What is stored, and under which paths: a folder a lock with its last token, in it the queue's nodes, each with JSON
in ASCII. The names of the nodes and their order are those of kazoo's Lock; that of one of several holders says of how
many, so that a list of names tells who may hold the lock."""

from __future__ import annotations

import json
import re
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from .base import Client, Unavailable
from .client_record import UNREADABLE, as_json, client_in

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
_CONTENDER = re.compile(r"(?:-of-([1-9]\d{0,3}))?__r?lock__(\d{10})\Z")  # __rlock__ is kazoo's ReadLock
_ROOT = "/distlock"


class Paths:
    """Of one ensemble, below its chroot."""

    def __init__(self, chroot: str) -> None:
        self.clock = f"{chroot}{_ROOT}/clock-"
        """Beginning of a node that lives for one question: when the server made it."""
        self.other_clock = f"{chroot}{_ROOT}-clock-"
        """Where nothing has been made yet."""
        self.locks = f"{chroot}{_ROOT}/lock"
        self.fences = f"{chroot}{_ROOT}/fence"

    def folder(self, name: str) -> str:
        return f"{self.locks}/{encoded(name)}"

    def fence(self, resource: str) -> str:
        """The folder of its registers."""
        return f"{self.fences}/{encoded(resource)}"


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


def ending(holders: int) -> str:
    """Of the name of a node, before the number that the server gives it."""
    return f"-of-{holders}__lock__" if holders > 1 else "__lock__"


def holders_of(node: str) -> int:
    """How many may hold the lock at once, as its contender says."""
    match = _CONTENDER.search(node)
    return int(match[1]) if match and match[1] else 1


def in_order(nodes: list[str]) -> list[str]:
    """Those that take part in the queue, first come first."""
    matches = filter(None, map(_CONTENDER.search, nodes))
    return [node for _, node in sorted((match[2], match.string) for match in matches)]


def in_front(queue: Sequence[str]) -> list[str]:
    """Those of a queue that hold the lock, or may as soon as they notice: the first, and as many behind it as it says,
    up to one that says something else."""
    if not queue:
        return []
    most = holders_of(queue[0])
    return list(islice(takewhile(lambda node: holders_of(node) == most, queue), most))


class Entry(NamedTuple):
    """What a distlock says of itself in its node."""

    client: Client
    ttl: float
    beat: float | None
    """A waiter writes its node anew at least this often, in seconds; None for a holder, and for who has just come."""
    session: bytes
    """The password of the session, by which another process takes the lease over. It is no secret to anybody who can
    read the node: servers compute it from the session's number, with a constant of their source code."""
    revoked_by: str | None = None
    """The operator who took the lease away,"""
    renewed: float | None = None
    """and when it was renewed before that, by the server's clock. Else the node's stamp says it."""
    holder_index: int | None = None
    """Of one of several holders,"""
    token: int | None = None
    """and its token, which is the node's czxid unless somebody behind it was faster."""

    def holds(self, node: str) -> bool:
        """If it is in front."""
        return self.beat is None if holders_of(node) == 1 else self.holder_index is not None

    def token_of(self, stat: Any) -> int:
        return int(stat.czxid) if self.token is None else self.token


def encode(entry: Entry) -> bytes:
    record: dict[str, Any] = {"version": VERSION, **entry.client._asdict()}
    record.update(ttl=entry.ttl, beat=entry.beat, session=entry.session.hex())
    if entry.revoked_by is not None:
        record.update(revoked_by=entry.revoked_by, renewed=entry.renewed)
    if entry.holder_index is not None:
        record.update(index=entry.holder_index, token=entry.token)
    return as_json(record).encode()


def decode(stored: bytes | None, where: str) -> Entry | None:
    """None for what no distlock has written. Raises Unavailable for a layout that this program does not know."""
    found = told(stored, where)
    if found is None:
        return None
    try:
        client = client_in(found)
        beat = None if found["beat"] is None else float(found["beat"])
        entry = Entry(client, float(found["ttl"]), beat, bytes.fromhex(found["session"]))
        if found.get("index") is not None:
            entry = entry._replace(holder_index=int(found["index"]), token=int(found["token"]))
        if found.get("revoked_by") is None:
            return entry
        return entry._replace(revoked_by=str(found["revoked_by"]), renewed=float(found["renewed"]))
    except UNREADABLE:
        return None


def encode_token(token: int) -> bytes:
    return as_json({"version": VERSION, "token": token}).encode()


def last_token(stored: bytes | None, where: str) -> int | None:
    """What the folder of a lock says. None in a new one, or one that kazoo has made. Raises Unavailable for anything
    else that is no record of ours: it may be another layout."""
    if not stored:
        return None
    found = told(stored, where)
    if found is None or not isinstance(found.get("token"), int):
        raise _unknown(stored, where)
    return int(found["token"])


def told(stored: bytes | None, where: str) -> dict[str, Any] | None:
    """A record of ours; None for what is none. Raises Unavailable for a layout that this program does not know."""
    try:
        found = json.loads(stored or b"")
    except ValueError:
        return None
    if not isinstance(found, dict) or "version" not in found:
        return None
    if found["version"] != VERSION:
        raise _unknown(stored or b"", where)
    return found


def _unknown(stored: bytes, where: str) -> Unavailable:
    shown = stored.decode(errors="backslashreplace")[:40]
    return Unavailable(f"{where}: {shown!r} is written in a layout that this program does not know", permanent=True)
