"""One lock as the majority of its servers sees it."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from .base import Client, LockState, Marked
from .redlock_nodes import DRIFT, DRIFT_MORE
from .several import state_of_several

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .base import Holding

_ALIKE = 1.0
"""Seconds between the ages of what may be one mark: the servers are told, and asked, one after the other."""


def merged(name: str, states: Sequence[LockState], quorum: int) -> LockState:
    """Held if a majority says so, by whom a majority names. What only a few keep nobody holds: it is the rest of a
    lease, or somebody is just trying."""
    held = [state for state in states if state.held]
    success = latest([state.last_success for state in states])
    most, holdings = _several(states, quorum)
    if holdings:
        return state_of_several(name, most, holdings, _waiters(states), success)
    if len(held) < quorum:
        return LockState(name, False, None, None, None, None, _waiters(states), success)
    ((owner, named),) = Counter(map(_alone, held)).most_common(1)
    if named >= quorum:
        held = [state for state in held if _alone(state) == owner]
    one = held[0] if owner and named >= quorum else None
    ttl = one.ttl if one else None
    expires_in = _left([state.expires_in for state in held], ttl, quorum)
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


def _alone(state: LockState) -> str | None:
    """Who holds it, if not with others: whom a majority does not know by an index is a holder unknown."""
    return state.holder.owner if state.holder and state.max_holders == 1 else None


def _several(states: Sequence[LockState], quorum: int) -> tuple[int, list[Holding]]:
    """How many may hold the lock, and who a majority says has which index."""
    found: dict[tuple[int, int, str], list[Holding]] = {}
    for state in states:
        for holding in state.holdings:
            key = state.max_holders, holding.holder_index, holding.holder.owner
            found.setdefault(key, []).append(holding)
    known = {key: alike for key, alike in found.items() if len(alike) >= quorum}
    most = max((most for most, _, _ in known), default=1)
    return most, [_holding(alike, quorum) for (number, _, _), alike in known.items() if number == most]


def _holding(alike: Sequence[Holding], quorum: int) -> Holding:
    one = alike[0]
    return one._replace(
        token=None,
        expires_in=_left([holding.expires_in for holding in alike], one.ttl, quorum) or 0.001,
        kept=sum(holding.kept for holding in alike) >= quorum,
        revoked_by=next((holding.revoked_by for holding in alike if holding.revoked_by), None),
    )


def _left(ends: Sequence[float | None], ttl: float | None, quorum: int) -> float | None:
    """Until no majority is left, as so many of them have run out."""
    end = sorted(math.inf if one is None else one for one in ends)[len(ends) - quorum]
    left = end - ttl * DRIFT - DRIFT_MORE if ttl is not None else end
    return None if end == math.inf else max(0.001, left)


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
