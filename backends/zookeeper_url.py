"""Which ensemble a URL means."""

from __future__ import annotations

import re
from typing import NamedTuple

from .url_parts import address, control_character, decoded, host_name, parts, place, wrong

_PORT = 2181


class Server(NamedTuple):
    host: str
    port: int

    @property
    def address(self) -> str:
        """As messages show it."""
        return address(self.host, self.port)


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
    beginnings = "zookeeper:// or zookeepers://"
    scheme, login, places, path, _ = parts(url, beginnings, tls=url.startswith("zookeepers:"))
    if "@" in url and (login.user is None or ":" in login.user):
        raise wrong(scheme, "a login is USER:PASSWORD@, and a user of ZooKeeper has no colon in its name")
    found = Ensemble(tuple(_server(scheme, text) for text in places.split(",")), _chroot(scheme, path), *login)
    if re.search("[\x80-\x9f]", f"{found.chroot}{found.user}{found.password}"):
        raise control_character(scheme)  # as ZooKeeper has them
    return found


def _server(scheme: str, text: str) -> Server:
    host, port = place(scheme, text, _PORT, form="several with commas, an IPv6 one in brackets")
    return Server(host_name(scheme, host), port)


def _chroot(scheme: str, path: str) -> str:
    chroot = decoded(scheme, path).rstrip("/")
    if chroot and any(part in ("", ".", "..") for part in chroot[1:].split("/")):
        raise wrong(scheme, "the path behind the hosts is one of ZooKeeper's: no empty part, no . and no ..")
    if chroot == "/zookeeper" or chroot.startswith("/zookeeper/"):
        raise wrong(scheme, "the path /zookeeper belongs to the servers themselves")
    return chroot
