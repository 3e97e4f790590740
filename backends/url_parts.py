"""What URLs of servers have in common: a login, hosts with ports, files for TLS in the query.

Nothing of a URL is shown but hosts, ports and the names of query keys: a character that was not escaped could make any
other part of it a piece of the password. urllib.parse takes a URL apart without complaint at such a slip, knows no list
of hosts, and quotes what it does not understand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from .base import ConfigurationError

_TLS_FILES = ("ca", "cert", "key")
_HOST = re.compile(r"\[[0-9A-Fa-f:.%a-z]+\]|[^\s:,\[\]]+")


class Login(NamedTuple):
    """And how the connection is made."""

    user: str | None
    password: str | None
    tls: bool
    ca: str | None
    cert: str | None
    key: str | None

    def __repr__(self) -> str:
        return "<login>"  # a NamedTuple's own shows the password


class Parts(NamedTuple):
    scheme: str
    login: Login
    places: str
    """HOST[:PORT], one or several with commas, as written."""
    path: str
    """Behind them, as written, with its first slash."""
    options: dict[str, str]
    """The query, decoded."""

    def __repr__(self) -> str:
        return f"<parts of {self.scheme}://***>"


def parts(url: str, beginnings: str, *, tls: bool, known: tuple[str, ...] = ()) -> Parts:
    """Of ``SCHEME://[USER[:PASSWORD]@]PLACES[/PATH][?QUERY]``. ``beginnings`` says which there are; ``known`` are query
    keys beside those of TLS. Raises ConfigurationError."""
    scheme, _, rest = url.partition(":")
    if not rest.startswith("//"):
        raise wrong(scheme, f"it begins with {beginnings}")
    before, _, query = rest[2:].partition("?")
    # Userinfo may hold anything but / and ?, which must be escaped there.
    authority, slash, path = before.partition("/")
    credentials, _, places = authority.rpartition("@")
    if "@" in path or "@" in query or "#" in rest:
        raise unescaped(scheme)
    user, colon, password = credentials.partition(":")
    options = _options(scheme, query, (*known, *(_TLS_FILES if tls else ())))
    files = [options.get(name) for name in _TLS_FILES]
    if "key" in options and "cert" not in options:
        raise wrong(scheme, "key= needs cert=")
    login = Login(decoded(scheme, user) or None, decoded(scheme, password) if colon else None, tls, *files)
    return Parts(scheme, login, places, slash + path, options)


def wrong(scheme: str, what: str) -> ConfigurationError:
    return ConfigurationError(f"backend URL {scheme}://***: {what}")


def unescaped(scheme: str) -> ConfigurationError:
    return wrong(scheme, "/, ?, # and @ in a user or password are written %2F, %3F, %23 and %40")


def decoded(scheme: str, text: str) -> str:
    try:
        decoded = unquote_to_bytes(text).decode()
    except UnicodeError:
        raise wrong(scheme, "percent escapes are UTF-8") from None
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise wrong(scheme, "a % that is no escape is written %25")
    if has_control(decoded):
        raise control_character(scheme)
    return decoded


def has_control(text: str) -> bool:
    return any(ord(character) < 0x20 or ord(character) == 0x7F for character in text)


def control_character(scheme: str) -> ConfigurationError:
    return wrong(scheme, "it contains a control character")


def place(
    scheme: str, text: str, port: int, *, form: str = "an IPv6 address in brackets", host: re.Pattern[str] = _HOST
) -> tuple[str, int]:
    """Host as written, and port, by default ``port``. ``form`` ends the sentence of what there should be."""
    match = host.match(text)
    behind = text[match.end() :] if match else ""
    if not match or (behind and not re.fullmatch(r":[0-9]{1,5}", behind)):
        raise wrong(scheme, f"behind the last @ it has HOST or HOST:PORT, {form}")
    number = int(behind[1:]) if behind else port
    if not 0 < number < 65536:
        raise wrong(scheme, "the port is a number from 1 to 65535")
    return match[0], number


def host_name(scheme: str, host: str) -> str:
    """Without escapes and brackets, for the resolver."""
    name = decoded(scheme, host.strip("[]"))
    try:
        name.encode("idna")  # as the resolver's interface does: it raises what nobody would expect from it
    except UnicodeError:
        raise wrong(scheme, "the host is no host name") from None
    return name


def address(host: str, port: int) -> str:
    """As messages show it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
