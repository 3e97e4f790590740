"""A lock as operators see it: plain data, the same for the table, for JSON and for one lock or many.

The keys are a promise: they may grow, and none is renamed or removed under the same version.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Iterable, Sequence

from .backends.base import Client, LockState
from .deadline import default_grace, hard_deadline
from .holders import each_holder

VERSION = 1

Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]


def utc_milliseconds(instant: float) -> str:
    whole = int(instant)
    return utc(whole).replace("Z", f".{int((instant - whole) * 1000):03d}Z")


def utc(instant: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instant))


def client_view(client: Client) -> dict[str, Plain]:
    """``started_at`` is the wall clock of the client's host: for people, in UTC."""
    return {
        "host": client.host,
        "pid": client.pid,
        "user": client.user,
        "command": client.command,
        "label": client.label,
        "owner": client.owner,
        "started_at": utc(client.since),
    }


def state_of(state: LockState) -> str:
    """held; expiring: held, but a holder with the default grace is past the point where its command is stopped; kept:
    nobody's, its last run asked for it; or free."""
    if not state.held:
        return "free"
    if state.kept:
        return "kept"
    if state.ttl is None or state.expires_in is None:
        return "held"
    soft = hard_deadline(0.0, state.ttl) - default_grace(state.ttl)
    return "expiring" if state.ttl - state.expires_in > soft else "held"


def lock_view(state: LockState) -> dict[str, Plain]:
    """A foreign holder (not distlock) is null in a lock that is held. Of several holders the keys for one show the
    first."""
    return {
        "name": state.name,
        **_holder_view(state),
        "waiters": [client_view(waiter) for waiter in state.waiters],
        "last_success_at": utc(state.last_success.at) if state.last_success else None,
        "max_holders": state.max_holders,
        "holders": [{"holder_index": index, **_holder_view(one)} for index, one in each_holder(state)],
    }


def _holder_view(state: LockState) -> dict[str, Plain]:
    """Of a lock as if it were this holder's alone."""
    return {
        "state": state_of(state),
        "token": state.token,
        "holder": client_view(state.holder) if state.holder else None,
        "ttl_seconds": state.ttl,
        "expires_in_seconds": None if state.expires_in is None else round(state.expires_in, 3),
    }


def select(states: Iterable[LockState], patterns: Sequence[str], free_too: bool) -> list[LockState]:
    """Those that match any pattern (all, if there is none), by name. A pattern is as of the shell, and case counts."""
    return sorted(
        (
            state
            for state in states
            if (free_too or state.held or state.waiters)
            and (not patterns or any(fnmatch.fnmatchcase(state.name, pattern) for pattern in patterns))
        ),
        key=lambda state: state.name,
    )
