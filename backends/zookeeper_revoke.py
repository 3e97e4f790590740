"""Taking a lease away: its holder's node says who did it, and the holder's watch on its own node tells it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import kazoo.exceptions as its
from kazoo.protocol.serialization import Delete, SetData

from .zookeeper_record import encode

if TYPE_CHECKING:
    from .zookeeper_record import Entry
    from .zookeeper_states import Reader


class Meant(NamedTuple):
    """The holder that is to lose its lease, by its token, or by its owner id if it has none."""

    folder: str
    token: int | None
    owner: str | None


def revoke(reader: Reader, meant: Meant, by: str, until: float, *, now: bool) -> bool:
    """False, and nothing is changed, if that is not the holder."""
    while True:
        found = [found for found in reader.in_front(meant.folder, until) if _is_meant(meant, *found)]
        if not found:
            return False
        node, entry, stat = found[0]
        assert entry is not None
        path = f"{meant.folder}/{node}"
        if now:
            # A node of this name is never made again. If it is gone meanwhile, be it by a request of ours whose answer
            # was lost, that is what was asked for.
            reader.ask(until, Delete(path, -1))
            return True
        # Our writing is no renewal, but the servers will stamp it as one.
        renewed = stat.mtime / 1000 if entry.renewed is None else entry.renewed
        written = encode(entry._replace(revoked_by=by, renewed=renewed))
        answer = reader.ask(until, SetData(path, written, stat.version))[0]
        if isinstance(answer, its.NoNodeError):
            return False
        if not isinstance(answer, Exception):
            return True  # else it was renewed, or written by us already


def _is_meant(meant: Meant, node: str, entry: Entry | None, stat: Any) -> bool:
    if entry is None or not entry.holds(node):
        return False  # a foreign holder's, or about to be had by a waiter
    return entry.client.owner == meant.owner if meant.token is None else entry.token_of(stat) == meant.token
