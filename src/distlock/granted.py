"""What becomes of a TTL that the server changed: engines whose servers set bounds grant what these allow."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from .backends.base import ConfigurationError, DistlockError
from .deadline import SHORTEST_TTL, longest_grace
from .durations import format_duration

if TYPE_CHECKING:
    from .backends.base import Backend, Grant


def check_granted(backend: Backend, grant: Grant, asked: float, grace: float, timeout: float) -> str | None:
    """A note for who wants to know, if the TTL is another one than was ``asked`` for. A lease in which a child could
    not be stopped in time is given back: raises ConfigurationError with what to do."""
    if grant.ttl == asked:
        return None
    granted = f"the backend grants a lease of {format_duration(grant.ttl)} instead of {format_duration(asked)}"
    if grant.ttl >= SHORTEST_TTL and grace <= longest_grace(grant.ttl):
        return granted
    with suppress(DistlockError):
        backend.release(grant, timeout)
    if grant.ttl < SHORTEST_TTL:
        raise ConfigurationError(
            f"{granted}: below {format_duration(SHORTEST_TTL)} an ordinary pause of a machine looks like a death; let"
            " the server grant longer ones"
        )
    raise ConfigurationError(
        f"{granted}: too short for a grace of {format_duration(grace)}; give --kill-after"
        f" {format_duration(longest_grace(grant.ttl))} or less, or let the server grant longer ones"
    )
