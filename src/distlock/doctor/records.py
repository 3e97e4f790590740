"""What the journal of this user knows of the backend: days of real renewals say more than seconds of trial ones."""

from __future__ import annotations

import time
from typing import NamedTuple

from distlock.backends.base import DistlockError
from distlock.journal import FILE, Journal
from distlock.state import state_directory

_SINCE = 30 * 86400.0
_BUSY = 0.5


class Records(NamedTuple):
    runs: int
    since: float
    """Seconds before now."""
    longest: float
    """Seconds that the slowest renewal took."""


def renewals_on_record(backend: str) -> Records | None:
    """None if there were none, or nobody can tell. ``backend`` as runs call it."""
    try:
        runs = Journal(state_directory() / FILE, busy=_BUSY).runs(since=time.time() - _SINCE)
    except DistlockError:
        return None
    took = [run["longest"] for run in runs if run["backend"] == backend and run["longest"] is not None]
    return Records(len(took), _SINCE, max(took)) if took else None
