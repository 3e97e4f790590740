"""What a process remembers of a lock that it holds. Another one can find out most of it from the grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .etcd_holder import Leaving
    from .etcd_link import Watch


class Held(NamedTuple):
    lease: int
    queue_lease: int
    """Of the place in the queue that it had before; 0 if none. Nothing keeps it alive any more."""
    number: int | None
    """None of a plain lock."""
    seen: int
    """The revision at which the key was there."""
    since: float
    """When it was granted, by our clock."""
    leaving: Leaving | None
    watch: Watch | None = None
    """Of our own key."""
