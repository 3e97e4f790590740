"""Who holds a lock, one or several: as data one by one, and in words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Container

    from .backends.base import Client, LockState

MOST_HOLDERS = 1000
_MOST_IN_WORDS = 3


def each_holder(state: LockState) -> list[tuple[int, LockState]]:
    """Its index, and the lock as if it were this holder's alone. Of a lock that is free nothing."""
    if not state.held:
        return []
    return [
        (
            one.holder_index,
            state._replace(
                token=one.token,
                holder=one.holder,
                ttl=one.ttl,
                expires_in=one.expires_in,
                kept=one.kept,
                revoked_by=one.revoked_by,
            ),
        )
        for one in state.holdings
    ] or [(0, state)]


def is_held_by(state: LockState, owners: Container[str]) -> bool:
    return any(one.holder is not None and one.holder.owner in owners for _, one in each_holder(state))


def describe(state: LockState) -> str:
    """The holders in one phrase: who, since when, token."""
    if not state.held:
        return "free now, or about to go to a waiter before this one"
    if state.max_holders == 1:
        return f"held by {_describe_one(state)}"
    all_of_them = [_describe_one(one) for _, one in each_holder(state)]
    many = len(all_of_them)
    free = "" if many >= state.max_holders else " (a place is free now, or about to go to a waiter before this one)"
    more = f"; and {many - _MOST_IN_WORDS} more" if many > _MOST_IN_WORDS else ""
    return f"{many} of {state.max_holders} hold it{free}: {'; '.join(all_of_them[:_MOST_IN_WORDS])}{more}"


def _describe_one(state: LockState) -> str:
    token = "" if state.token is None else f", token {state.token}"
    return ("somebody unknown" if state.holder is None else describe_client(state.holder)) + token


def describe_client(client: Client) -> str:
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(client.since))
    label = f" {quoted(client.label)}" if client.label else ""
    return f"{client.host}:{client.pid} ({client.user}){label} since {since}"
