"""What is stored: keys, values and their layout version.

    /distlock/lock/NAME/LEASE   of a holder or waiter: distlock:1:{JSON}, under its lease. The oldest one holds.
    /distlock/token/NAME        a record that stays: 1:TOKEN, or 1: where the token is the record's own revision
    /distlock/success/NAME      another: 1:START of the last run that succeeded, in µs by the clock of its host

NAME is percent-encoded, LEASE the id of the holder's lease in hex. The first line is the layout of clientv3/concurrency
but for the value, which is empty there and means nothing to others.
"""

from __future__ import annotations

import json
import re
import string
import time
from typing import NamedTuple

from .base import Client, Success, Unavailable

LAYOUT = b"1"
LOCKS = b"/distlock/lock/"
RECORDS = b"/distlock/token/"
SUCCESSES = b"/distlock/success/"
_OURS = b"distlock:"
_PLAIN = frozenset((string.ascii_letters + string.digits + "._-").encode())


def encoded(name: str) -> bytes:
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in name.encode()).encode()


def decoded(text: bytes) -> str | None:
    """None for what is nobody's name in this encoding: somebody else's key."""
    try:
        name = re.sub(rb"%([0-9A-F]{2})", lambda match: bytes.fromhex(match[1].decode()), text).decode()
    except ValueError:
        return None
    return name if name and encoded(name) == text else None


def queue(name: str) -> bytes:
    """What the keys of one lock begin with. A slash ends it, and no name has one: ``p`` is not part of ``p/1``."""
    return LOCKS + encoded(name) + b"/"


def behind(prefix: bytes) -> bytes:
    """The first key that does not begin with the prefix any more."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def key(name: str, lease: int) -> bytes:
    return queue(name) + f"{lease:x}".encode()


def record(name: str) -> bytes:
    return RECORDS + encoded(name)


def success(name: str) -> bytes:
    return SUCCESSES + encoded(name)


class Entry(NamedTuple):
    client: Client
    ttl: float
    holds: bool
    """False of a waiter, also of one whose turn has come and that has not taken the lock yet."""


class UnknownLayout(Unavailable):
    def __init__(self, where: bytes, value: bytes) -> None:
        shown = value.decode(errors="backslashreplace")[:40]
        place = where.decode(errors="backslashreplace")
        message = f"etcd key {place}: {shown!r} is written in a layout that this program does not know"
        super().__init__(message, permanent=True)


def encode(client: Client, ttl: float, *, holds: bool) -> bytes:
    """argv[0] and host names may hold bytes that are no UTF-8; these texts are for people."""
    told = {
        name: text.encode(errors="backslashreplace").decode() if isinstance(text, str) else text
        for name, text in client._asdict().items()
        if name != "since"
    }
    text = json.dumps({**told, "ttl": ttl, "holds": holds}, separators=(",", ":")).removesuffix("}")
    return b"%s%s:%s,%s}" % (_OURS, LAYOUT, text.encode(), _since(client.since))


def _since(instant: float) -> bytes:
    return b'"since":"%017.6f"' % instant  # a text, and so may have zeros in front


def dated(made: bytes, since: float) -> bytes:
    """The same as ``made``, which was encoded with a ``since`` of 0, and may be more than the bare value."""
    return made.replace(_since(0.0), _since(since))


def decode(where: bytes, value: bytes) -> Entry | None:
    """None for what no distlock has written. Raises UnknownLayout."""
    if not value.startswith(_OURS):
        return None
    layout, _, text = value.removeprefix(_OURS).partition(b":")
    if layout != LAYOUT:
        raise UnknownLayout(where, value)
    try:
        told = json.loads(text)
        client = Client(
            owner=str(told["owner"]),
            host=str(told["host"]),
            pid=int(told["pid"]),
            user=str(told["user"]),
            command=str(told["command"]),
            label=None if told["label"] is None else str(told["label"]),
            since=float(told["since"]),
        )
        return Entry(client, float(told["ttl"]), bool(told["holds"]))
    except (ValueError, KeyError, TypeError):
        return None


def encode_token(token: int | None) -> bytes:
    return LAYOUT + b":" + (b"" if token is None else str(token).encode())


def last_token(where: bytes, value: bytes, revision: int) -> int:
    """``revision`` is that of the record's last change. Raises UnknownLayout."""
    layout, colon, token = value.partition(b":")
    if layout != LAYOUT or not colon or (token and not token.isdigit()):
        raise UnknownLayout(where, value)
    return int(token or revision)


def encode_success(start: float) -> bytes:
    return LAYOUT + b":%016d" % (start * 1e6)


def started(made: bytes, ran_for: float) -> bytes:
    """The same as ``made``, in which a success was encoded with a start of 0. etcd has no clock to ask."""
    return made.replace(encode_success(0.0), encode_success(time.time() - ran_for))


def last_success(value: bytes) -> Success | None:
    """None of another layout too: it decides nothing."""
    layout, _, start = value.partition(b":")
    if layout != LAYOUT or not start.isdigit():
        return None
    at = int(start) / 1e6
    return Success(at, max(0.0, time.time() - at))
