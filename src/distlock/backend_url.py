"""Which backend, and how its URL may be shown."""

from __future__ import annotations

import os

EMBEDDED = "local:"


def chosen_backend(option: str | None) -> str:
    """Command line, then DISTLOCK_BACKEND (empty is unset), then the embedded default."""
    if option is not None:
        return option
    return os.environ.get("DISTLOCK_BACKEND") or EMBEDDED


def masked(url: str) -> str:
    """The URL without what may be secret: the password before the last @, and every value behind the ``?``. Where an
    unescaped character makes it unclear which part is the password, nothing but the scheme is shown."""
    scheme, slashes, rest = url.partition("://")
    if not slashes:
        return url
    rest, question, query = rest.partition("?")
    user, at, place = rest.rpartition("@")
    if not at and "@" in query:
        return f"{scheme}://***"
    if at:
        name, colon, _ = user.partition(":")
        user = name + (":***" if colon else "")
    keys = [part.partition("=") for part in query.split("&")] if question else []
    shown = "&".join(key + ("=***" if equals else "") for key, equals, _ in keys)
    return scheme + slashes + user + at + place + question + shown
