"""Nodes that others are made in, and whom they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kazoo.exceptions as its
from kazoo.protocol.serialization import Create2
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

if TYPE_CHECKING:
    from collections.abc import Callable


def acl_of(*, login: bool) -> Any:
    """With a login a node is its maker's alone, without one everybody's."""
    return CREATOR_ALL_ACL if login else OPEN_ACL_UNSAFE


def make(ask: Callable[[Any], Any], folder: str, acl: Any) -> None:
    """With what is missing above it, from below: what is there already may be in a place that is not for us."""
    create = Create2(folder, b"", acl, 0)
    above = folder.rpartition("/")[0]
    if isinstance(ask(create), its.NoNodeError) and above:
        make(ask, above, acl)
        ask(create)
