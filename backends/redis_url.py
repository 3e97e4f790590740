"""Which Redis a URL means, or which of several."""

from __future__ import annotations

from typing import NamedTuple

from .url_parts import Parts, address, decoded, host_name, parts, place, wrong

_PORT = 6379


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


def parse(url: str) -> Server:
    """``redis://``, ``rediss://`` ``[USER[:PASSWORD]@][HOST[:PORT]][/DB]``, the latter with ``?ca=&cert=&key=``, or
    ``redis+unix://[USER[:PASSWORD]@]/SOCKET[?db=N]``. Raises ConfigurationError."""
    (scheme, _, text, path, options), login = _parts(url, ("db",) if url.startswith("redis+unix:") else ())
    if scheme == "redis+unix":
        socket = decoded(scheme, path)
        if text or socket in ("", "/"):
            raise wrong(scheme, "the socket is an absolute path: redis+unix:///run/redis/redis.sock")
        return login._replace(address=socket, path=socket, db=database(scheme, options.get("db", "")))
    return _at(login, scheme, text or "localhost", _PORT)._replace(db=database(scheme, path[1:]))


def parse_several(url: str, port: int, extra: tuple[str, ...] = ()) -> Places:
    """``SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]]…[/PATH]``, no place twice, with ``?ca=&cert=&key=`` where
    the scheme says TLS, and the query keys ``extra``. Raises ConfigurationError."""
    (scheme, _, texts, path, options), login = _parts(url, extra)
    if not texts:
        raise wrong(scheme, f"it has HOST[:PORT],HOST[:PORT] behind {scheme}://")
    servers = tuple(_at(login, scheme, text, port) for text in texts.split(","))
    twice = next((server for server in servers if servers.count(server) > 1), None)
    if twice:
        raise wrong(scheme, f"{twice.address} stands in it twice")
    return Places(servers, decoded(scheme, path[1:]), options)


def at(login: Server, host: str, port: int) -> Server:
    """A server with the same login."""
    return login._replace(address=address(host, port), host=host, port=port)


def _at(login: Server, scheme: str, text: str, default: int) -> Server:
    host, port = place(scheme, text, default)
    return at(login, host_name(scheme, host), port)


def _parts(url: str, known: tuple[str, ...]) -> tuple[Parts, Server]:
    """And a server that has all but its place."""
    tls = url.startswith(("rediss:", "rediss+", "redlocks:"))
    found = parts(url, "redis://, rediss:// or redis+unix://", tls=tls, known=known)
    return found, Server("", "", 0, "", 0, *found.login)


def database(scheme: str, text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise wrong(scheme, "the database is a number: redis://HOST/0, redis+unix:///SOCKET?db=0")
    return int(text)
