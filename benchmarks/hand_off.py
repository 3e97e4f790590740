"""The time for which nobody works although somebody waits: from one child's end to the next one's start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .contest import contest
from .figures import Sample
from .peers import Peer
from .stamping_child import Child, gaps


def measure(
    peers: Sequence[Peer], child: Child, waiters: int, samples: int, folder: Path, environment: Mapping[str, str]
) -> dict[str, list[Sample]]:
    """Milliseconds, one gap a waiter. The peers take turns."""
    found: dict[str, list[Sample]] = {peer.name: [] for peer in peers}
    for _ in range(samples):
        for peer in peers:
            with contest(peer, child, waiters, folder, environment) as running:
                found[peer.name].append(Sample.of(gaps(running.release())))
    return found
