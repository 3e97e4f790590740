"""What one more waiter costs a machine: the PSS of all its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .contest import contest
from .figures import Sample
from .peers import Peer
from .processes import with_descendants
from .stamping_child import Child


def measure(
    peers: Sequence[Peer], child: Child, waiters: int, folder: Path, environment: Mapping[str, str]
) -> dict[str, Sample]:
    """Millions of bytes, one value a waiter. Pages that several processes share are divided among them, the holder
    included, so that with few waiters each has more."""
    found = {}
    for peer in peers:
        with contest(peer, child, waiters, folder, environment) as running:
            found[peer.name] = Sample.of(megabytes(pid) for pid in running.waiters)
            running.release()
    return found


def megabytes(pid: int) -> float:
    """Of a process and all below it."""
    return sum(pss(Path(f"/proc/{each}/smaps_rollup").read_text()) for each in with_descendants(pid)) / 1e6


def pss(rollup: str) -> int:
    """Bytes."""
    for line in rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ValueError("smaps_rollup without Pss")
