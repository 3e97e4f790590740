"""Which ensemble a URL means. Nothing of a URL is shown but hosts, ports and the names of query keys: a character that
was not escaped could make any other part of it a piece of the password."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from .base import ConfigurationError

_PORT = 2181
_TLS_FILES = ("ca", "cert", "key")
_SERVER = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%a-z]+)\]|(?P<name>[^\s:\[\]]+))(?::(?P<port>[0-9]{1,5}))?")


class Server(NamedTuple):
    host: str
    port: int

    @property
    def address(self) -> str:
        """As messages show it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Ensemble(NamedTuple):
    servers: tuple[Server, ...]
    chroot: str
    """What all paths begin with: empty, or an absolute path without a slash at its end."""
    user: str | None
    password: str | None
    tls: bool
    ca: str | None
    cert: str | None
    key: str | None

    @property
    def address(self) -> str:
        return ",".join(server.address for server in self.servers)

    def __repr__(self) -> str:
        return f"<ZooKeeper at {self.address}>"  # a NamedTuple's own shows the password


def parse(url: str) -> Ensemble:
    """``zookeeper://`` or ``zookeepers://`` ``[USER[:PASSWORD]@]HOST[:PORT],…[/CHROOT]``, the latter with
    ``?ca=&cert=&key=``. Raises ConfigurationError."""
    scheme, _, rest = url.partition("://")
    if scheme == url:
        raise _wrong("zookeeper", "it begins with zookeeper:// or zookeepers://")
    before, _, query = rest.partition("?")
    authority, slash, path = before.partition("/")
    credentials, at, places = authority.rpartition("@")
    if "@" in path or "@" in query or "#" in rest:
        raise _wrong(scheme, "/, ?, # and @ in a user or password are written %2F, %3F, %23 and %40")
    user, colon, password = credentials.partition(":")
    if at and (not user or "%3a" in user.lower()):
        raise _wrong(scheme, "a login is USER:PASSWORD@, and a user of ZooKeeper has no colon in its name")
    options = _options(scheme, query)
    if options.get("key") and not options.get("cert"):
        raise _wrong(scheme, "key= needs cert=")
    return Ensemble(
        servers=tuple(_server(scheme, place) for place in places.split(",")),
        chroot=_chroot(scheme, slash + path),
        user=_decoded(scheme, user) or None,
        password=_decoded(scheme, password) if colon else None,
        tls=scheme == "zookeepers",
        ca=options.get("ca"),
        cert=options.get("cert"),
        key=options.get("key"),
    )


def _wrong(scheme: str, what: str) -> ConfigurationError:
    return ConfigurationError(f"backend URL {scheme}://***: {what}")


def _decoded(scheme: str, text: str) -> str:
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeError:
        raise _wrong(scheme, "percent escapes are UTF-8") from None
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise _wrong(scheme, "a % that is no escape is written %25")
    if any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in decoded):
        raise _wrong(scheme, "it contains a control character")
    return decoded


def _server(scheme: str, place: str) -> Server:
    match = _SERVER.fullmatch(place)
    port = int(match["port"] or _PORT) if match else 0
    if not match or not 0 < port < 65536:
        raise _wrong(scheme, "behind the last @ it has HOST or HOST:PORT, several with commas, an IPv6 one in brackets")
    host = _decoded(scheme, match["six"] or match["name"])
    try:
        host.encode("idna")  # as the resolver's interface does: it raises what nobody would expect from it
    except UnicodeError:
        raise _wrong(scheme, "a host is no host name") from None
    return Server(host, port)


def _chroot(scheme: str, path: str) -> str:
    chroot = _decoded(scheme, path).rstrip("/")
    if chroot and any(part in ("", ".", "..") for part in chroot[1:].split("/")):
        raise _wrong(scheme, "the path behind the hosts is one of ZooKeeper's: no empty part, no . and no ..")
    if chroot == "/zookeeper" or chroot.startswith("/zookeeper/"):
        raise _wrong(scheme, "the path /zookeeper belongs to the servers themselves")
    return chroot


def _options(scheme: str, query: str) -> dict[str, str]:
    known = _TLS_FILES if scheme == "zookeepers" else ()
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
        if not Path(found[name]).is_file():
            raise _wrong(scheme, f"{name}= names no file")
    return found
