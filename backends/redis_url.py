"""Which Redis a URL means. Nothing of a URL is shown but the address and the names of query keys: a character that was
not escaped could make any other part of it a piece of the password."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from .base import ConfigurationError

_PORT = 6379
_TLS_FILES = ("ca", "cert", "key")
_HOST = re.compile(r"\[(?P<six>[0-9A-Fa-f:.%a-z]+)\]|(?P<name>[^\s:\[\]]+)")


class Server(NamedTuple):
    address: str
    """As messages show it."""
    host: str
    port: int
    path: str
    """Of the socket; empty for TCP."""
    db: int
    user: str | None
    password: str | None
    tls: bool
    ca: str | None
    cert: str | None
    key: str | None

    def __repr__(self) -> str:
        return f"<Redis at {self.address}>"  # a NamedTuple's own shows the password


def parse(url: str) -> Server:
    """``redis://``, ``rediss://`` ``[USER[:PASSWORD]@][HOST[:PORT]][/DB]``, the latter with ``?ca=&cert=&key=``, or
    ``redis+unix://[USER[:PASSWORD]@]/SOCKET[?db=N]``. Raises ConfigurationError."""
    scheme, _, rest = url.partition("://")
    if not scheme.startswith("redis") or scheme == url:
        raise _wrong("redis", "it begins with redis://, rediss:// or redis+unix://")
    before, _, query = rest.partition("?")
    # Userinfo may hold anything but / and ?, which must be escaped there.
    authority, slash, path = before.partition("/")
    credentials, at, place = authority.rpartition("@")
    if "@" in path or "@" in query or "#" in rest:
        raise _wrong(scheme, "/, ?, # and @ in a user or password are written %2F, %3F, %23 and %40")
    user, colon, password = credentials.partition(":")
    options = _options(scheme, query)
    found = Server(
        address="",
        host="",
        port=0,
        path="",
        db=0,
        user=_decoded(scheme, user) or None,
        password=_decoded(scheme, password) if at and colon else None,
        tls=scheme == "rediss",
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
    )
    if found.key and not found.cert:
        raise _wrong(scheme, "key= needs cert=")
    if scheme == "redis+unix":
        socket = _decoded(scheme, slash + path)
        if place or socket in ("", "/"):
            raise _wrong(scheme, "the socket is an absolute path: redis+unix:///run/redis/redis.sock")
        return found._replace(address=socket, path=socket, db=_db(scheme, options.get("db", "")))
    host, port = _host_and_port(scheme, place)
    shown = f"[{host}]" if ":" in host else host
    return found._replace(address=f"{shown}:{port}", host=host, port=port, db=_db(scheme, path))


def _wrong(scheme: str, what: str) -> ConfigurationError:
    return ConfigurationError(f"backend URL {scheme}://***: {what}")


def _decoded(scheme: str, text: str) -> str:
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeError:
        raise _wrong(scheme, "percent escapes are UTF-8") from None
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise _wrong(scheme, "a % that is no escape is written %25")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in decoded):
        raise _wrong(scheme, "it contains a control character")
    return decoded


def _db(scheme: str, text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _wrong(scheme, "the database is a number: redis://HOST/0, redis+unix:///SOCKET?db=0")
    return int(text)


def _host_and_port(scheme: str, place: str) -> tuple[str, int]:
    if not place:
        return "localhost", _PORT
    match = _HOST.match(place)
    port = place[match.end() :] if match else ""
    if not match or (port and not re.fullmatch(r":[0-9]{1,5}", port)):
        raise _wrong(scheme, "behind the last @ it has HOST or HOST:PORT, an IPv6 address in brackets")
    number = int(port[1:]) if port else _PORT
    if not 0 < number < 65536:
        raise _wrong(scheme, "the port is a number from 1 to 65535")
    host = _decoded(scheme, match["six"] or match["name"])
    try:
        host.encode("idna")  # as the resolver's interface does: it raises what nobody would expect from it
    except UnicodeError:
        raise _wrong(scheme, "the host is no host name") from None
    return host, number


def _options(scheme: str, query: str) -> dict[str, str]:
    known = _TLS_FILES if scheme == "rediss" else ("db",) if scheme == "redis+unix" else ()
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, equals, value = part.partition("=")
        if name not in known:
            shown = name if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", name) else "***"
            these = " and ".join(f"{key}=" for key in known) or "none"
            raise _wrong(scheme, f"unknown query key {shown!r}; {scheme}:// takes {these}")
        if not equals or not value or name in found:
            raise _wrong(scheme, f"query key {name!r} has one value")
        found[name] = _decoded(scheme, value)
    for name in _TLS_FILES:
        if name in found and not Path(found[name]).is_file():
            raise _wrong(scheme, f"{name}= names no file")
    return found
