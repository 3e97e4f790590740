"""Forgetting locks at each of several servers."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .redlock_nodes import Nodes

_BATCH = 200
_LISTING = 3600.0
"""Seconds: each of the requests has a time-out of its own."""


def purged(nodes: Nodes, wanted: Callable[[str], bool], unused_for: float, timeout: float) -> Iterator[str]:
    """What is kept at one server, or is in use there only, is looked for from each of them."""
    for first in range(len(nodes.all)):
        names = nodes.all[first].backend.recorded(timeout)

        def more(number: int, names: Iterator[str] = names, first: int = first) -> list[str]:
            return list(islice(names, _BATCH)) if number == first else []

        while True:
            replies = nodes.ask(more, _LISTING, lambda _: False)
            if first in replies.errors:
                break  # the others tell what it would
            if not replies.values[first]:
                break
            batch = [name for name in dict.fromkeys(replies.values[first]) if wanted(name)]
            yield from _forgotten(nodes, batch, unused_for, timeout)


def _forgotten(nodes: Nodes, names: Sequence[str], unused_for: float, timeout: float) -> Iterator[str]:
    """By a majority."""

    def forget(number: int) -> list[str]:
        return [name for name in names if nodes.all[number].backend.forget(name, unused_for, timeout)]

    replies = nodes.ask(forget, _LISTING, lambda _: False)
    if len(replies.values) < nodes.quorum:
        raise nodes.failure(replies.errors)
    count = Counter(name for forgotten in replies.values.values() for name in forgotten)
    yield from (name for name in names if count[name] >= nodes.quorum)
