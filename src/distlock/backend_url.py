"""URLs of backends: the embedded default, the password beside one, and how one may be shown."""

from __future__ import annotations

import os
from collections.abc import Sequence

EMBEDDED = "local:"


def probable_backend(arguments: Sequence[str]) -> str:
    """A guess at what will be chosen, before options and configuration have been read. Good for getting ready, for no
    more."""
    for index, word in enumerate(arguments):
        if word in ("-b", "--backend"):
            return "".join(arguments[index + 1 : index + 2])
        if word.startswith("--backend="):
            return word.removeprefix("--backend=")
    return os.environ.get("DISTLOCK_BACKEND") or EMBEDDED


def password() -> str | None:
    """DISTLOCK_PASSWORD (empty is unset), for a URL without a password: it is not seen in a process list."""
    return os.environ.get("DISTLOCK_PASSWORD") or None


def masked(url: str) -> str:
    """The URL without what may be secret: the password before the last @, and all behind the ``?``, where an unescaped
    & in a value would make the rest of it look like a name. Where a slip makes it unclear which part is the password,
    nothing but the scheme is shown."""
    scheme, _, rest = url.partition(":")
    if not rest.startswith("//"):
        return url if not rest or (scheme == "local" and "@" not in rest and "?" not in rest) else f"{scheme}:***"
    before, question, query = rest[2:].partition("?")
    if "@" in query or ("@" not in before and not _all_ports(before.partition("/")[0])):
        return f"{scheme}://***"  # USER:PASSWORD, perhaps, whose @HOST was forgotten
    user, at, place = before.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}" + (":***" if colon else "") + at + place + ("?***" if question else "")


def _all_ports(hosts: str) -> bool:
    """Whether what stands behind colons are ports."""
    return all(
        not port or port.isdigit()
        for host in hosts.split(",")
        for _, _, port in [host.rpartition("]")[2].partition(":")]
    )


def has_secret(url: str) -> bool:
    """Whether a password is, or by a slip may be, part of it. A user's name and paths of files are none."""
    if "***" in masked(url).removesuffix("?***"):
        return True
    names = [part.partition("=")[0].lower() for part in url.partition("?")[2].split("&")]
    return any(word in name for name in names for word in ("pass", "secret", "token") if name != "passfile")
