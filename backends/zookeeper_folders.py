"""Nodes that others are made in, and whom they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kazoo.exceptions as its
from kazoo.protocol.serialization import CheckVersion, Create, Create2, GetChildren2, Transaction
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from .base import Refused

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


def check_rights(ask: Callable[[Any], Any], folder: str) -> None:
    """Of a folder that is not there: raises Refused if it could neither be seen nor be made. Servers do not check a
    login, they compare it with whom a node belongs to: where nothing is, nothing else can be known of it."""
    above = folder.rpartition("/")[0]
    try:
        seen = ask(GetChildren2(above or "/", None))
    except Refused:
        # Permissions are looked at step by step, and the second one cannot be carried out.
        ask(Transaction([Create(folder, b"", OPEN_ACL_UNSAFE, 0), CheckVersion(f"{folder}/none", -1)]))
        return
    if isinstance(seen, its.NoNodeError) and above:
        check_rights(ask, above)
