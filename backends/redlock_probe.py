"""What independent Redis are, and what breaks locks at a majority of them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from .probe import Finding, Probe
from .redis_probe import look, named, probe_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .redis_probe import Looked
    from .redlock_nodes import Nodes


def probe(nodes: Nodes, until: float, timeout: float) -> Probe:
    """Raises Unavailable, Refused if no majority answers."""
    replies = nodes.ask(lambda number: look(nodes.all[number].link, until, each_write=True), timeout, lambda _: False)
    if len(replies.values) < nodes.quorum:
        raise nodes.failure(replies.errors)
    looked = [replies.values[number] for number in sorted(replies.values)]
    silent = [
        Finding(
            f"A server does not serve: with {len(nodes.all) - nodes.quorum + 1} that do not, nobody gets a lock.",
            str(replies.errors[number]),
            f"See after {nodes.all[number].link.address}.",
        )
        for number in sorted(replies.errors)
    ]
    server = f"{named(looked)}, {len(looked)} of {len(nodes.all)} independent servers"
    return probe_of(server, looked, [*silent, *_twice(looked)])


def _twice(looked: Sequence[Looked]) -> Iterator[Finding]:
    addresses = defaultdict(list)
    for one in looked:
        addresses[one.run_id].append(one.address)
    for run_id, same in addresses.items():
        if run_id and len(same) > 1:
            yield Finding(
                "One server has two votes: when it restarts or fails, more is lost than one of the majority.",
                f"run_id {run_id} at {' and '.join(same)}",
                "Name each server once.",
            )
