"""Sums over all runs of one lock that ever ended here: what the metrics are made of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .measures import HOLD_BOUNDS, LATENCY_BOUNDS, RATIO_BOUNDS, UNLOCKED, WAIT_BOUNDS, Histogram

if TYPE_CHECKING:
    from .measures import Run


class Sums:
    def __init__(self, stored: str = "{}") -> None:
        """What cannot be read counts from zero: a monitoring that sees a counter restart knows what to do."""
        try:
            told = json.loads(stored)
        except ValueError:
            told = {}
        told = told if isinstance(told, dict) else {}
        self.acquisitions: dict[str, int] = _counts(told.get("acquisitions"))
        self.outcomes: dict[str, int] = _counts(told.get("outcomes"))
        self.renewal_failures = _number(told.get("renewal_failures"))
        self.waits = _histogram(WAIT_BOUNDS, told.get("waits"))
        self.holds = _histogram(HOLD_BOUNDS, told.get("holds"))
        self.latencies = _histogram(LATENCY_BOUNDS, told.get("latencies"))
        self.ratios = _histogram(RATIO_BOUNDS, told.get("ratios"))
        self.ttl = float(_number(told.get("ttl")))
        self.last_end = float(_number(told.get("last_end")))
        self.last_success = float(_number(told.get("last_success")))

    def add(self, run: Run, ended_at: float) -> None:
        self.acquisitions[run.acquisition] = self.acquisitions.get(run.acquisition, 0) + 1
        self.waits.add(run.waited)
        self.ttl = run.ttl
        self.last_end = ended_at
        if run.outcome == UNLOCKED or (run.granted_at is not None and run.held is not None):
            self.outcomes[run.outcome] = self.outcomes.get(run.outcome, 0) + 1
        if run.granted_at is None or run.held is None:
            return
        self.holds.add(run.held)
        self.ratios.add(run.held / run.ttl)
        if run.outcome == "succeeded":
            self.last_success = max(self.last_success, run.granted_at)
        if run.renewals:
            self.latencies.add_all(run.renewals.latencies)
            self.renewal_failures += run.renewals.failures

    def stored(self) -> str:
        return json.dumps(
            {
                "acquisitions": self.acquisitions,
                "outcomes": self.outcomes,
                "renewal_failures": self.renewal_failures,
                "waits": _pair(self.waits),
                "holds": _pair(self.holds),
                "latencies": _pair(self.latencies),
                "ratios": _pair(self.ratios),
                "ttl": self.ttl,
                "last_end": self.last_end,
                "last_success": self.last_success,
            },
            separators=(",", ":"),
        )


def _pair(histogram: Histogram) -> list[object]:
    return [histogram.counts, histogram.total]


def _histogram(bounds: tuple[float, ...], told: object) -> Histogram:
    match told:
        case [[*counts], int() | float() as total]:
            whole = [count for count in counts if isinstance(count, int)]
            return Histogram(bounds, whole, float(total))
    return Histogram(bounds)


def _counts(told: object) -> dict[str, int]:
    return {key: value for key, value in told.items() if isinstance(value, int)} if isinstance(told, dict) else {}


def _number(told: object) -> int | float:
    return told if isinstance(told, int | float) else 0
