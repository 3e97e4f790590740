"""Which Redis a URL means, or which of several. Nothing of a URL is shown but addresses and the names of query keys: a
character that was not escaped could make any other part of it a piece of the password."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from .base import ConfigurationError

_PORT = 6379
_TLS_FILES = ("ca", "cert", "key")
_TLS_SCHEMES = ("rediss", "redlocks")
_HOST = re.compile(r"\[(?P<six>[0-9A-Fa-f:.%a-z]+)\]|(?P<name>[^\s:,\[\]]+)")


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


class Places(NamedTuple):
    """Several servers with the same login: those that were named."""

    servers: tuple[Server, ...]
    path: str
    """Behind the hosts, decoded, without its first slash."""
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"<several Redis: {self.shown}>"  # the options may hold a password

    @property
    def shown(self) -> str:
        return ",".join(server.address for server in self.servers)


class _Parts(NamedTuple):
    scheme: str
    login: Server
    """All but the place."""
    place: str
    path: str
    options: dict[str, str]


def parse(url: str) -> Server:
    """``redis://``, ``rediss://`` ``[USER[:PASSWORD]@][HOST[:PORT]][/DB]``, the latter with ``?ca=&cert=&key=``, or
    ``redis+unix://[USER[:PASSWORD]@]/SOCKET[?db=N]``. Raises ConfigurationError."""
    scheme, login, place, path, options = _parts(url, ("db",) if url.startswith("redis+unix:") else ())
    if scheme == "redis+unix":
        socket = decoded(scheme, path)
        if place or socket in ("", "/"):
            raise wrong(scheme, "the socket is an absolute path: redis+unix:///run/redis/redis.sock")
        return login._replace(address=socket, path=socket, db=database(scheme, options.get("db", "")))
    return at(login, *_host_and_port(scheme, place, _PORT))._replace(db=database(scheme, path[1:]))


def parse_several(url: str, port: int, extra: tuple[str, ...] = ()) -> Places:
    """``SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]]…[/PATH]``, no place twice, with ``?ca=&cert=&key=`` where
    the scheme says TLS, and the query keys ``extra``. Raises ConfigurationError."""
    scheme, login, place, path, options = _parts(url, extra)
    if not place:
        raise wrong(scheme, f"it has HOST[:PORT],HOST[:PORT] behind {scheme}://")
    servers = tuple(at(login, *_host_and_port(scheme, one, port)) for one in place.split(","))
    twice = next((server for server in servers if servers.count(server) > 1), None)
    if twice:
        raise wrong(scheme, f"{twice.address} stands in it twice")
    return Places(servers, decoded(scheme, path[1:]), options)


def at(login: Server, host: str, port: int) -> Server:
    """A server with the same login."""
    shown = f"[{host}]" if ":" in host else host
    return login._replace(address=f"{shown}:{port}", host=host, port=port)


def _parts(url: str, extra: tuple[str, ...]) -> _Parts:
    scheme, _, rest = url.partition("://")
    if not scheme.startswith("red") or scheme == url:
        raise wrong("redis", "it begins with redis://, rediss:// or redis+unix://")
    before, _, query = rest.partition("?")
    # Userinfo may hold anything but / and ?, which must be escaped there.
    authority, slash, path = before.partition("/")
    credentials, has_login, place = authority.rpartition("@")
    if "@" in path or "@" in query or "#" in rest:
        raise wrong(scheme, "/, ?, # and @ in a user or password are written %2F, %3F, %23 and %40")
    user, colon, password = credentials.partition(":")
    tls = scheme.partition("+")[0] in _TLS_SCHEMES
    options = _options(scheme, query, (*extra, *(_TLS_FILES if tls else ())))
    login = Server(
        address="",
        host="",
        port=0,
        path="",
        db=0,
        user=decoded(scheme, user) or None,
        password=decoded(scheme, password) if has_login and colon else None,
        tls=tls,
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
    )
    if login.key and not login.cert:
        raise wrong(scheme, "key= needs cert=")
    return _Parts(scheme, login, place, slash + path, options)


def wrong(scheme: str, what: str) -> ConfigurationError:
    return ConfigurationError(f"backend URL {scheme}://***: {what}")


def decoded(scheme: str, text: str) -> str:
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeError:
        raise wrong(scheme, "percent escapes are UTF-8") from None
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise wrong(scheme, "a % that is no escape is written %25")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in decoded):
        raise wrong(scheme, "it contains a control character")
    return decoded


def database(scheme: str, text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise wrong(scheme, "the database is a number: redis://HOST/0, redis+unix:///SOCKET?db=0")
    return int(text)


def _host_and_port(scheme: str, place: str, default: int) -> tuple[str, int]:
    if not place and scheme in ("redis", "rediss"):
        return "localhost", default
    match = _HOST.match(place)
    port = place[match.end() :] if match else ""
    if not match or (port and not re.fullmatch(r":[0-9]{1,5}", port)):
        raise wrong(scheme, "behind the last @ it has HOST or HOST:PORT, an IPv6 address in brackets")
    number = int(port[1:]) if port else default
    if not 0 < number < 65536:
        raise wrong(scheme, "the port is a number from 1 to 65535")
    host = decoded(scheme, match["six"] or match["name"])
    try:
        host.encode("idna")  # as the resolver's interface does: it raises what nobody would expect from it
    except UnicodeError:
        raise wrong(scheme, "the host is no host name") from None
    return host, number


def _options(scheme: str, query: str, known: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, query.split("&")):
        name, equals, value = part.partition("=")
        if name not in known:
            shown = name if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", name) else "***"
            these = " and ".join(f"{key}=" for key in known) or "none"
            raise wrong(scheme, f"unknown query key {shown!r}; {scheme}:// takes {these}")
        if not equals or not value or name in found:
            raise wrong(scheme, f"query key {name!r} has one value")
        found[name] = decoded(scheme, value)
    for name in _TLS_FILES:
        if name in found and not Path(found[name]).is_file():
            raise wrong(scheme, f"{name}= names no file")
    return found
