"""One lock as the majority of its servers sees it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from .base import Client, LockState
from .redlock_nodes import DRIFT, DRIFT_MORE

if TYPE_CHECKING:
    from collections.abc import Sequence


def merged(name: str, states: Sequence[LockState], quorum: int) -> LockState:
    """Held if a majority says so, by whom a majority names. What only a few keep nobody holds: it is the rest of a
    lease, or somebody is just trying."""
    held = [state for state in states if state.held]
    success = max((state.last_success for state in states if state.last_success), default=None)
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
    return LockState(name, True, None, one.holder if one else None, ttl, expires_in, _waiters(states), success)


def _waiters(states: Sequence[LockState]) -> tuple[Client, ...]:
    """In the order of the server that knows most of them."""
    found: dict[str, Client] = {}
    for state in sorted(states, key=lambda state: len(state.waiters), reverse=True):
        for waiter in state.waiters:
            found.setdefault(waiter.owner, waiter)
    return tuple(found.values())
