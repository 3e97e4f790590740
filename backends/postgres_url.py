"""Which PostgreSQL a URL means. libpq reads it: URIs, services, environment and password files are as anywhere else.
Nothing of a URL is shown but hosts, ports and names of parameters."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

import psycopg
from psycopg import pq

from .url_parts import control_character, has_control, unescaped, wrong

_DEFAULTS = {
    "application_name": "distlock",
    # A peer that has gone is noticed in seconds. Every request has a time-out of its own beside this.
    "keepalives": "1",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_FORCED = {"client_encoding": "UTF8"}
_READ_ONLY = ("read-only", "standby", "prefer-standby")


class Server(NamedTuple):
    parameters: dict[str, str]
    """As libpq takes them; a password may be among them."""

    def __repr__(self) -> str:
        return "<PostgreSQL>"

    def with_password(self, password: str | None) -> Server:
        """For one that has none."""
        if password is None or "password" in self.parameters:
            return self
        return Server({**self.parameters, "password": password})


def parse(url: str) -> Server:
    """``postgresql://`` or ``postgres://``, whatever libpq takes there. Raises ConfigurationError."""
    scheme, colon, rest = url.partition(":")
    if not colon or not rest.startswith("//"):
        raise wrong(scheme, f"it begins with {scheme}://")
    authority, _, query = rest[2:].partition("?")
    if "@" in query or "#" in rest or authority.count("@") > 1 or "@" in authority.partition("/")[2]:
        raise unescaped(scheme)
    try:
        options = pq.Conninfo.parse(os.fsencode(f"postgresql:{rest}"))
    except psycopg.OperationalError as error:
        raise wrong(scheme, _reason(str(error))) from None
    given = {o.keyword.decode(): os.fsdecode(o.val) for o in options if o.val is not None}
    if given.get("target_session_attrs") in _READ_ONLY:
        raise wrong(scheme, "target_session_attrs= must lead to a server that can be written to")
    if given.get("replication", "false") not in ("false", "off", "no", "0"):
        raise wrong(scheme, "replication= is for connections of another kind")
    if any(map(has_control, given.values())):
        raise control_character(scheme)
    if "sslrootcert" in given and not os.environ.get("PGSSLMODE"):
        given.setdefault("sslmode", "verify-full")  # libpq would take any certificate: its default is prefer
    return Server({**_DEFAULTS, **given, **_FORCED})


def conninfo(parameters: dict[str, str]) -> bytes:
    """As libpq reads it back."""
    pairs = []
    for name, value in parameters.items():
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        pairs.append(f"{name}='{escaped}'")
    return os.fsencode(" ".join(pairs))


def _reason(said: str) -> str:
    """libpq's own words quote the URL."""
    if match := re.search(r'invalid URI query parameter: "([A-Za-z_]{1,40})"', said):
        return f"unknown query key {match[1]!r}; known are the parameters of libpq"
    if "percent-encoded" in said:
        return "a % that is no escape is written %25"
    if "forbidden value %00" in said:
        return "it contains a control character"
    if "port" in said:
        return "the port is a number from 1 to 65535"
    if "IPv6" in said or "]" in said:
        return "an IPv6 address stands in brackets"
    return "libpq does not understand it: postgresql://[USER[:PASSWORD]@][HOST[:PORT][,…]][/DATABASE][?PARAMETER=VALUE]"
