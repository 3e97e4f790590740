"""Which backend, and how its URL may be shown."""

from __future__ import annotations

import os

EMBEDDED = "local:"


def chosen_backend(option: str | None) -> str:
    """Command line, then DISTLOCK_BACKEND (empty is unset), then the embedded default."""
    if option is not None:
        return option
    return os.environ.get("DISTLOCK_BACKEND") or EMBEDDED


def is_named(option: str | None) -> bool:
    """Whether somebody chose it, rather than nobody."""
    return option is not None or bool(os.environ.get("DISTLOCK_BACKEND"))


def password() -> str | None:
    """DISTLOCK_PASSWORD (empty is unset), for a URL without a password: it is not seen in a process list."""
    return os.environ.get("DISTLOCK_PASSWORD") or None


def masked(url: str) -> str:
    """The URL without what may be secret: the password before the last @, and all behind the ``?``, where an unescaped
    & in a value would make the rest of it look like a name. Where a slip makes it unclear which part is the password,
    nothing but the scheme is shown."""
    scheme, _, rest = url.partition(":")
    if not rest.startswith("//"):
        return f"{scheme}:***" if "@" in rest or "?" in rest else url
    before, question, query = rest[2:].partition("?")
    if "@" in query:
        return f"{scheme}://***"
    user, at, place = before.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}" + (":***" if colon else "") + at + place + ("?***" if question else "")
