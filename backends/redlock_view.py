"""One lock as the majority of its servers sees it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from .base import Client, LockState, Marked
from .redlock_nodes import DRIFT, DRIFT_MORE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ALIKE = 1.0
"""Seconds between the ages of what may be one mark: the servers are told, and asked, one after the other."""


def merged(name: str, states: Sequence[LockState], quorum: int) -> LockState:
    """Held if a majority says so, by whom a majority names. What only a few keep nobody holds: it is the rest of a
    lease, or somebody is just trying."""
    held = [state for state in states if state.held]
    success = latest([state.last_success for state in states])
    if len(held) < quorum:
        return LockState(name, False, None, None, None, None, _waiters(states), success)
    ((owner, most),) = Counter(state.holder.owner if state.holder else None for state in held).most_common(1)
    if most >= quorum:
        held = [state for state in held if (state.holder.owner if state.holder else None) == owner]
    one = held[0] if most >= quorum else None
    ttl = one.ttl if one else None
    # No majority is left when so many of them have run out.
    ends = sorted(math.inf if state.expires_in is None else state.expires_in for state in held)[len(held) - quorum]
    left = ends - ttl * DRIFT - DRIFT_MORE if ttl is not None else ends
    expires_in = None if ends == math.inf else max(0.001, left)
    return LockState(
        name=name,
        held=True,
        token=None,
        holder=one.holder if one else None,
        ttl=ttl,
        expires_in=expires_in,
        waiters=_waiters(states),
        last_success=success,
        kept=one is not None and sum(state.kept for state in held) >= quorum,
        # One is enough for the holder, too.
        revoked_by=next((state.revoked_by for state in held if state.revoked_by), None) if one else None,
    )


def latest(marks: Iterable[Marked | None]) -> Marked | None:
    """By their ages: the clocks of servers may be apart. Of one mark, which each has written by its own clock, always
    the same server's."""
    known = [mark for mark in marks if mark]
    youngest = min((mark.age for mark in known), default=0.0)
    return max((mark for mark in known if mark.age <= youngest + _ALIKE), default=None)


def _waiters(states: Sequence[LockState]) -> tuple[Client, ...]:
    """In the order of the server that knows most of them."""
    found: dict[str, Client] = {}
    for state in sorted(states, key=lambda state: len(state.waiters), reverse=True):
        for waiter in state.waiters:
            found.setdefault(waiter.owner, waiter)
    return tuple(found.values())
