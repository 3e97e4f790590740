"""Locks for several holders at once: what every engine says of them in the same words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import LockState, OtherHolders

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .base import Client, Holding, Marked


def other_holders(name: str, theirs: int, ours: int) -> OtherHolders:
    held = f"with --max-holders {theirs}" if theirs > 1 else "without --max-holders"
    wanted = f"--max-holders {ours}" if ours > 1 else "one holder"
    return OtherHolders(f"'{name}' is held {held}: nobody gets it with {wanted} until it is free")


def state_of_several(
    name: str,
    max_holders: int,
    holdings: Sequence[Holding],
    waiters: tuple[Client, ...],
    last_success: Marked | None,
) -> LockState:
    """Of a lock that somebody holds; the fields for one holder are the first's."""
    ordered = tuple(sorted(holdings))
    first = ordered[0]
    return LockState(
        name,
        held=True,
        token=first.token,
        holder=first.holder,
        ttl=first.ttl,
        expires_in=first.expires_in,
        waiters=waiters,
        last_success=last_success,
        kept=first.kept,
        revoked_by=first.revoked_by,
        max_holders=max_holders,
        holdings=ordered,
    )
