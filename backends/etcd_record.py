"""What is stored: keys, values and their layout version.

    /distlock/lock/NAME/LEASE   of a holder or waiter: distlock:1:{JSON}, under its lease. The oldest one holds.
    /distlock/token/NAME        a record that stays: 1:TOKEN, or 1: where the token is the record's own revision; 2: of
                                the same meaning if it was granted to one of several holders
    /distlock/token/NAME/INDEX  of one of several holders: 1:HOLDERS, under its lease. Its create revision is the token
    /distlock/success/NAME      another: 1:UNTIL:START of the last run that succeeded
    /distlock/mark/NAME/SLOT    the same of another mark, under a lease
    /distlock/fence/NAME/INDEX  a fence register: 1:TOKEN, the greatest seen of the resource NAME. It stays

START, when what is marked began, and UNTIL, for how long it is remembered, are µs of Unix time in 16 digits, by the
clock of the host that wrote it: etcd has none to ask. NAME and SLOT are percent-encoded, LEASE the id of the holder's
lease in hex. The first line is the layout of clientv3/concurrency but for the value, which is empty there and means
nothing to others; it also says that the lock is kept, or who has taken the lease away.
"""

from __future__ import annotations

import json
import time
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from .base import SUCCESS, Client, Marked, Unavailable
from .client_record import UNREADABLE, as_json, client_in

LAYOUT = b"1"
SEVERAL = b"2"
"""The layout of a record after a grant to one of several. A waiter for a plain lock that came before it must not hold
as if its place were the greatest token yet."""
LOCKS = b"/distlock/lock/"
RECORDS = b"/distlock/token/"
SUCCESSES = b"/distlock/success/"
MARKS = b"/distlock/mark/"
FENCES = b"/distlock/fence/"
_OURS = b"distlock:"


def encoded(name: str) -> bytes:
    """Every byte but ``A-Za-z0-9._-`` as %XX."""
    return quote(name, safe="").replace("~", "%7E").encode()  # quote leaves ~ alone


def decoded(text: bytes) -> str | None:
    """None for what is nobody's name in this encoding: somebody else's key."""
    try:
        name = unquote_to_bytes(text).decode()
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


def indexes(name: str) -> bytes:
    """What the keys of several holders' indexes begin with."""
    return record(name) + b"/"


def index(name: str, number: int) -> bytes:
    return indexes(name) + b"%d" % number


def success(name: str) -> bytes:
    return SUCCESSES + encoded(name)


def marks(name: str) -> bytes:
    """What the keys of its marks begin with."""
    return MARKS + encoded(name) + b"/"


def mark(name: str, slot: str) -> bytes:
    return success(name) if slot == SUCCESS else marks(name) + encoded(slot)


def fences(resource: str) -> bytes:
    """What the keys of a resource's registers begin with."""
    return FENCES + encoded(resource) + b"/"


def fence(resource: str, index: int) -> bytes:
    return fences(resource) + b"%d" % index


class Entry(NamedTuple):
    client: Client
    ttl: float
    holds: bool
    """False of a waiter, also of one whose turn has come and that has not taken the lock yet."""
    kept: bool = False
    """Nobody's any more; ``ttl`` is the length for which it is kept."""
    revoked_by: str | None = None
    holders: int = 1
    """How many may hold the lock at once."""


class UnknownLayout(Unavailable):
    def __init__(self, where: bytes, value: bytes) -> None:
        shown = value.decode(errors="backslashreplace")[:40]
        place = where.decode(errors="backslashreplace")
        message = f"etcd key {place}: {shown!r} is written in a layout that this program does not know"
        super().__init__(message, permanent=True)


def encode(entry: Entry) -> bytes:
    told: dict[str, object] = {**entry.client._asdict(), "ttl": entry.ttl, "holds": entry.holds}
    told.pop("since")
    if entry.kept:
        told["kept"] = True
    if entry.revoked_by is not None:
        told["revoked_by"] = entry.revoked_by
    if entry.holders > 1:
        told["holders"] = entry.holders
    text = as_json(told).removesuffix("}")
    return b"%s%s:%s,%s}" % (_OURS, LAYOUT, text.encode(), _since(entry.client.since))


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
        client, by = client_in(told), told.get("revoked_by")
        return Entry(
            client,
            ttl=float(told["ttl"]),
            holds=bool(told["holds"]),
            kept=bool(told.get("kept")),
            revoked_by=None if by is None else str(by),
            holders=int(told.get("holders", 1)),
        )
    except UNREADABLE:
        return None


def encode_token(token: int | None, layout: bytes = LAYOUT) -> bytes:
    return layout + b":" + (b"" if token is None else str(token).encode())


def last_token(where: bytes, value: bytes, revision: int) -> int:
    """``revision`` is that of the record's last change. Raises UnknownLayout."""
    layout, colon, token = value.partition(b":")
    if layout not in (LAYOUT, SEVERAL) or not colon or (token and not token.isdigit()):
        raise UnknownLayout(where, value)
    return int(token or revision)


def register(where: bytes, value: bytes) -> int:
    """Raises UnknownLayout."""
    layout, _, token = value.partition(b":")
    if layout != LAYOUT or not token.isdigit():
        raise UnknownLayout(where, value)
    return int(token)


def layout_of(value: bytes) -> bytes:
    """Of a record that is known."""
    return value.partition(b":")[0]


def encode_holders(holders: int) -> bytes:
    return LAYOUT + b":%d" % holders


def holders_in(where: bytes, value: bytes) -> int:
    """Of an index. Raises UnknownLayout."""
    return register(where, value)


def encode_mark(start: float, until: float) -> bytes:
    """UNTIL first: in the order of their values, those come first that are forgotten first."""
    return LAYOUT + b":%016d:%016d" % (_digits(until), _digits(start))


def _digits(instant: float) -> int:
    return int(min(max(instant * 1e6, 0.0), 1e16 - 2))


def new_mark(ago: float, keep: float) -> bytes:
    now = time.time()
    return encode_mark(now - ago, now + keep)


def dated_mark(made: bytes, ago: float, keep: float) -> bytes:
    """The same as ``made``, in which a mark was encoded with zeros."""
    return made.replace(encode_mark(0.0, 0.0), new_mark(ago, keep))


def marked(where: bytes, value: bytes) -> Marked | None:
    """None if it need not be remembered any more. Raises UnknownLayout."""
    layout, _, instants = value.partition(b":")
    until, _, start = instants.partition(b":")
    if layout != LAYOUT or not (until.isdigit() and start.isdigit()):
        raise UnknownLayout(where, value)
    now, at = time.time(), int(start) / 1e6
    return Marked(at, now - at) if now < int(until) / 1e6 else None
