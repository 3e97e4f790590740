"""The release of a lock, with what is to be remembered of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..backends.base import SUCCESS, SUCCESS_KEPT, DistlockError, Mark
from ..clock import boottime
from ..quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..backends.base import Backend, Grant

RELEASE = 3.0
"""Seconds for giving the lease back: the supervisor waits for little more."""
RELEASE_WHEN_LOST = 0.3
_SOON = 1.0


def release(backend: Backend, grant: Grant, ran_for: float | None, warn: Callable[[str], None]) -> None:
    """``ran_for``: the run has succeeded, and began that many seconds ago. The mark of it must not be in the way of the
    release: a full disk or memory may refuse it alone. Raises what Backend.release does."""
    if ran_for is None:
        backend.release(grant, RELEASE)
        return
    asked = boottime()
    try:
        backend.release(grant, RELEASE, (Mark(SUCCESS, ran_for, SUCCESS_KEPT),))
    except DistlockError as error:
        if boottime() - asked > _SOON:
            raise  # nobody waits for a second try
        backend.release(grant, _SOON)
        warn(f"{quoted(grant.name)}: that this run succeeded could not be recorded: {error}")
