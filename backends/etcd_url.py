"""Which etcd a URL means."""

from __future__ import annotations

import re
from typing import NamedTuple

from .base import ConfigurationError
from .url_parts import parts, place, wrong

_PORT = 2379
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+")  # no more than gRPC takes


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
    scheme, login, places, path, _ = parts(url, "etcd:// or etcds://", tls=url.startswith("etcds:"))
    if path not in ("", "/"):
        raise wrong(scheme, "behind the endpoints there is no path")
    if login.user is None and "@" in url:
        raise wrong(scheme, "a password needs a user: USER:PASSWORD@")
    if login.cert and not login.key:
        raise wrong(scheme, "cert= needs key=")
    endpoints = dict.fromkeys(_endpoint(scheme, one) for one in (places or "localhost").split(","))
    return Server(tuple(endpoints), *login)


def _endpoint(scheme: str, text: str) -> str:
    host, port = place(scheme, text, _PORT, form="commas between, an IPv6 address in brackets", host=_HOST)
    return f"{host}:{port}"


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
