"""Which etcd a URL means. Nothing of a URL is shown but its endpoints and the names of query keys: a character that was
not escaped could make any other part of it a piece of the password."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from .base import ConfigurationError

_PORT = 2379
_TLS_FILES = ("ca", "cert", "key")
_HOST = re.compile(r"\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+)")


class Server(NamedTuple):
    """A cluster, or its only member."""

    endpoints: tuple[str, ...]
    """HOST:PORT each, an IPv6 address in brackets: as messages show them."""
    user: str | None
    password: str | None
    tls: bool
    ca: str | None
    cert: str | None
    key: str | None

    def __repr__(self) -> str:
        return f"<etcd at {','.join(self.endpoints)}>"  # a NamedTuple's own shows the password


def parse(url: str) -> Server:
    """``etcd://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]]…``, or ``etcds://`` with the same and ``?ca=&cert=&key=``.
    Raises ConfigurationError."""
    scheme, _, rest = url.partition("://")
    if scheme not in ("etcd", "etcds") or scheme == url:
        raise _wrong("etcd", "it begins with etcd:// or etcds://")
    before, _, query = rest.partition("?")
    # Userinfo may hold anything but / and ?, which must be escaped there.
    authority, _, path = before.partition("/")
    credentials, at, places = authority.rpartition("@")
    if "@" in path or "@" in query or "#" in rest:
        raise _wrong(scheme, "/, ?, # and @ in a user or password are written %2F, %3F, %23 and %40")
    if path:
        raise _wrong(scheme, "behind the endpoints there is no path")
    user, colon, password = credentials.partition(":")
    if at and not user:
        raise _wrong(scheme, "a password needs a user: USER:PASSWORD@")
    options = _options(scheme, query)
    if options.get("key") and not options.get("cert"):
        raise _wrong(scheme, "key= needs cert=")
    if options.get("cert") and not options.get("key"):
        raise _wrong(scheme, "cert= needs key=")
    return Server(
        endpoints=tuple(dict.fromkeys(_endpoint(scheme, place) for place in (places or "localhost").split(","))),
        user=_decoded(scheme, user) or None,
        password=_decoded(scheme, password) if colon else None,
        tls=scheme == "etcds",
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
    )


def with_password(server: Server, password: str | None) -> Server:
    """``password`` counts for a user without one. Raises ConfigurationError."""
    if server.user is None or server.password is not None:
        return server
    if not password:
        raise ConfigurationError(
            f"etcd at {','.join(server.endpoints)}: the URL names a user without a password, and DISTLOCK_PASSWORD is"
            " not set"
        )
    try:
        password.encode()
    except UnicodeEncodeError:
        raise ConfigurationError("DISTLOCK_PASSWORD: passwords of etcd are UTF-8") from None
    return server._replace(password=password)


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


def _endpoint(scheme: str, place: str) -> str:
    match = _HOST.match(place)
    port = place[match.end() :] if match else ""
    if not match or (port and not re.fullmatch(r":[0-9]{1,5}", port)):
        raise _wrong(scheme, "behind the last @ it has HOST or HOST:PORT, commas between, an IPv6 address in brackets")
    number = int(port[1:]) if port else _PORT
    if not 0 < number < 65536:
        raise _wrong(scheme, "the port is a number from 1 to 65535")
    return f"{match[0]}:{number}"


def _options(scheme: str, query: str) -> dict[str, str]:
    known = _TLS_FILES if scheme == "etcds" else ()
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
    for name, path in found.items():
        if not Path(path).is_file():
            raise _wrong(scheme, f"{name}= names no file")
    return found
