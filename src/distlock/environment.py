"""The environment of the child: the one distlock was started with, and what README promises on top."""

from __future__ import annotations

import os
from collections.abc import Mapping

_OURS = (b"FENCING_TOKEN", b"NAME", b"OWNER", b"TTL", b"LEASE", b"HOLDER_INDEX", b"PASSWORD")


def inherited() -> dict[bytes, bytes]:
    """What the caller passed, from /proc: os.environ already holds the LC_CTYPE that Python puts there in a C locale.
    A name given twice keeps its first value, which is the one getenv(3) finds."""
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    result: dict[bytes, bytes] = {}
    for entry in entries:
        name, equals, value = entry.partition(b"=")
        if equals and name:
            result.setdefault(name, value)
    return result


def outer_owners(environment: Mapping[bytes, bytes]) -> tuple[str, ...]:
    """Owner ids of the runs that this one is nested in, outermost first."""
    return tuple(part.decode("ascii", "replace") for part in environment.get(b"DISTLOCK_RUN", b"").split(b":") if part)


def of_child(caller: Mapping[bytes, bytes], *, name: str, owner: str) -> dict[bytes, bytes]:
    """All that is known before the grant. Nothing of an outer run stays but its place in DISTLOCK_RUN: an outer token
    with an inner name would fence the wrong resource."""
    result = {key: value for key, value in caller.items() if key not in {b"DISTLOCK_" + word for word in _OURS}}
    result[b"DISTLOCK_NAME"] = name.encode()
    result[b"DISTLOCK_OWNER"] = owner.encode()
    result[b"DISTLOCK_RUN"] = ":".join((*outer_owners(caller), owner)).encode()
    return result


def add_grant(
    environment: dict[bytes, bytes], token: int | None, ttl: float, lease_file: str, holder_index: int | None
) -> None:
    """The rest. The TTL is the one that was granted."""
    environment[b"DISTLOCK_TTL"] = repr(ttl).removesuffix(".0").encode()  # "g" would write twelve days as 1.0368e+06
    if token is not None:
        environment[b"DISTLOCK_FENCING_TOKEN"] = str(token).encode()
    if lease_file:
        environment[b"DISTLOCK_LEASE"] = os.fsencode(lease_file)
    if holder_index is not None:
        environment[b"DISTLOCK_HOLDER_INDEX"] = str(holder_index).encode()
