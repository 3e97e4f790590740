"""The journal's sums as Prometheus text. The only user of prometheus-client."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

if TYPE_CHECKING:
    from .journal import Journal
    from .measures import Histogram
    from .sums import Sums

_LABELS = ("lock", "backend", "user")


class _JournalCollector(Collector):
    def __init__(self, sums: dict[tuple[str, str], Sums], refusals: dict[str, int], user: str) -> None:
        self._sums = sums
        self._refusals = refusals
        self._user = user

    def collect(self) -> Iterator[Metric]:
        yield from self._histograms()
        yield from self._counters()
        yield from self._gauges()

    def _histograms(self) -> Iterator[Metric]:
        waits = HistogramMetricFamily("distlock_wait_seconds", "From asking for a lock to the answer.", labels=_LABELS)
        holds = HistogramMetricFamily("distlock_hold_seconds", "From a grant to its release.", labels=_LABELS)
        latencies = HistogramMetricFamily(
            "distlock_renewal_latency_seconds", "Of renewals that were answered.", labels=_LABELS
        )
        ratios = HistogramMetricFamily("distlock_hold_ttl_ratio", "Length of a hold by its TTL.", labels=_LABELS)
        for key, sums in self._sums.items():
            for family, histogram in (
                (waits, sums.waits),
                (holds, sums.holds),
                (latencies, sums.latencies),
                (ratios, sums.ratios),
            ):
                family.add_metric([*key, self._user], _buckets(histogram), histogram.total)
        yield from (waits, holds, latencies, ratios)

    def _counters(self) -> Iterator[Metric]:
        acquisitions = CounterMetricFamily(
            "distlock_acquisitions", "Attempts to get a lock, by how they ended.", labels=[*_LABELS, "outcome"]
        )
        runs = CounterMetricFamily(
            "distlock_runs",
            "Runs of the command, by how they ended; unlocked: without the lock.",
            labels=[*_LABELS, "outcome"],
        )
        failures = CounterMetricFamily(
            "distlock_renewal_failures", "Renewals that failed and were tried again.", labels=_LABELS
        )
        lost = CounterMetricFamily("distlock_leases_lost", "Leases that could not be kept.", labels=_LABELS)
        for key, sums in self._sums.items():
            labels = [*key, self._user]
            for outcome in sorted({"granted", "busy", *sums.acquisitions}):
                acquisitions.add_metric([*labels, outcome], sums.acquisitions.get(outcome, 0))
            for outcome in sorted({"succeeded", "failed", "lost", "unlocked", *sums.outcomes}):
                runs.add_metric([*labels, outcome], sums.outcomes.get(outcome, 0))
            failures.add_metric(labels, sums.renewal_failures)
            lost.add_metric(labels, sums.outcomes.get("lost", 0))
        refusals = CounterMetricFamily(
            "distlock_fencing_refusals", "Stale tokens that a resource has refused here.", labels=["resource", "user"]
        )
        for resource, count in self._refusals.items():
            refusals.add_metric([resource, self._user], count)
        yield from (acquisitions, runs, failures, lost, refusals)

    def _gauges(self) -> Iterator[Metric]:
        ttl = GaugeMetricFamily("distlock_ttl_seconds", "TTL of the last run.", labels=_LABELS)
        end = GaugeMetricFamily(
            "distlock_last_run_end_timestamp_seconds", "When the last run ended, also in vain.", labels=_LABELS
        )
        success = GaugeMetricFamily(
            "distlock_last_success_timestamp_seconds",
            "When the last run of this host that succeeded started.",
            labels=_LABELS,
        )
        for key, sums in self._sums.items():
            labels = [*key, self._user]
            ttl.add_metric(labels, sums.ttl)
            end.add_metric(labels, sums.last_end)
            if sums.last_success:
                success.add_metric(labels, sums.last_success)
        yield from (ttl, end, success)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Prometheus counts each bucket with all below it."""
    so_far, buckets = 0, []
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        so_far += count
        buckets.append((bound, float(so_far)))
    return buckets


def metrics_text(journal: Journal) -> bytes:
    """Raises Unavailable."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_JournalCollector(journal.sums(), journal.refusals(), _user()))
    return generate_latest(registry)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
