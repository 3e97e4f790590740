"""What is measured of runs: sums that only grow, and histograms with fixed bounds."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

WAIT_BOUNDS = (0.005, 0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
HOLD_BOUNDS = (0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0)
LATENCY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RATIO_BOUNDS = (0.1, 0.25, 0.5, 0.8, 1.0, 2.0, 5.0, 10.0, 60.0, 600.0)

UNLOCKED = "unlocked"
"""Outcome of a run whose command ran without a lock, from the start or in the end (--fail-open)."""


class Histogram:
    """Counts of values up to each bound, with one more for those above the last, and their sum."""

    def __init__(self, bounds: tuple[float, ...], counts: list[int] | None = None, total: float = 0.0) -> None:
        self.bounds = bounds
        fits = counts is not None and len(counts) == len(bounds) + 1
        self.counts = counts if counts is not None and fits else [0] * (len(bounds) + 1)
        self.total = total

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_all(self, other: Histogram) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    @property
    def count(self) -> int:
        return sum(self.counts)


class Renewals:
    """Of one run. Told by the renewing thread, read by another one once that has stopped."""

    def __init__(self) -> None:
        self.latencies = Histogram(LATENCY_BOUNDS)
        self.longest = 0.0
        self.closest: float | None = None
        """Seconds that were left until the command would have been told to stop, when the answer came that came the
        latest."""
        self.failures = 0

    def answered(self, latency: float, left: float) -> None:
        self.latencies.add(max(0.0, latency))
        self.longest = max(self.longest, latency)
        self.closest = left if self.closest is None else min(self.closest, left)

    @property
    def mean(self) -> float | None:
        return self.latencies.total / self.latencies.count if self.latencies.count else None


class Run(NamedTuple):
    """One run of this host, as the journal keeps it. Instants are Unix time, for people; lengths are of a clock that
    nobody sets."""

    name: str
    backend: str
    """A profile's name, or a URL without secrets."""
    owner: str
    pid: int
    label: str | None
    ttl: float
    outcome: str
    """granted runs: succeeded, failed, lost, killed, unlocked. Others: unlocked, busy, skipped, cancelled, unavailable,
    refused, misconfigured, error."""
    asked_at: float
    waited: float
    granted_at: float | None = None
    held: float | None = None
    token: int | None = None
    exit_code: int | None = None
    """The command's, 128+N if signal N ended it."""
    reason: str | None = None
    slack: float | None = None
    """Seconds from a renewal being due until the command would be told to stop, of a renewal that is on time."""
    renewals: Renewals | None = None
    holder_index: int | None = None
    """Of a run that may be one of several holders."""

    @property
    def acquisition(self) -> str:
        """How asking for the lock ended. Of a command that ran without it: nobody was reached."""
        if self.granted_at is not None:
            return "granted"
        return "unavailable" if self.outcome == UNLOCKED else self.outcome
