"""Runs of the journal as operators see them, and what they say about a lease that is about to lie. The keys are a
promise, as in lock_view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .durations import format_duration
from .lock_view import Plain, utc_milliseconds

if TYPE_CHECKING:
    import sqlite3

VERSION = 1
_NEAR_TTL = 0.8
_ENOUGH_RUNS = 5
_MARGIN_USED = 0.5


def run_view(run: sqlite3.Row) -> dict[str, Plain]:
    """Times are the wall clock of this host; it asked for the lock at ``asked_at`` and had it at ``granted_at``."""
    return {
        "name": run["name"],
        "backend": run["backend"],
        "outcome": run["outcome"],
        "exit_code": run["exit_code"],
        "reason": run["reason"],
        "token": run["token"],
        "owner": run["owner"],
        "pid": run["pid"],
        "label": run["label"],
        "asked_at": utc_milliseconds(run["asked_at"]),
        "granted_at": None if run["granted_at"] is None else utc_milliseconds(run["granted_at"]),
        "ended_at": utc_milliseconds(run["ended_at"]),
        "wait_seconds": round(run["waited"], 6),
        "hold_seconds": None if run["held"] is None else round(run["held"], 6),
        "ttl_seconds": run["ttl"],
        "renewals": run["renewals"],
        "renewal_failures": run["failures"],
        "renewal_latency_mean_seconds": run["mean"],
        "renewal_latency_max_seconds": run["longest"],
        "renewal_left_min_seconds": run["closest"],
        "holder_index": run["holder_index"] if "holder_index" in run.keys() else None,  # noqa: SIM118 - a row has values
    }


class Finding(NamedTuple):
    """A lock whose lease is about to lie."""

    name: str
    backend: str
    text: str


def findings(runs: Sequence[sqlite3.Row]) -> list[Finding]:
    """By lock, in the order of names."""
    locks: dict[tuple[str, str], list[sqlite3.Row]] = {}
    for run in runs:
        if run["held"] is not None:
            locks.setdefault((run["name"], run["backend"]), []).append(run)
    return [Finding(*key, text) for key, some in sorted(locks.items()) for text in _of_lock(some)]


def _of_lock(runs: Sequence[sqlite3.Row]) -> list[str]:
    found = []
    ttl = runs[-1]["ttl"]
    same_ttl = [run for run in runs if run["ttl"] == ttl]
    p99 = percentile([run["held"] for run in same_ttl], 0.99)
    if len(same_ttl) >= _ENOUGH_RUNS and _NEAR_TTL * ttl <= p99 <= ttl:
        found.append(
            f"99 of 100 holds end within {format_duration(p99)}, near the TTL of {format_duration(ttl)}: from there on"
            " each lives by its renewals; a longer --ttl would spare them"
        )
    tight = [run for run in runs if run["closest"] is not None and run["closest"] < (1 - _MARGIN_USED) * run["slack"]]
    if tight:
        worst = min(tight, key=lambda run: run["closest"] / run["slack"])
        found.append(
            f"a renewal was answered {format_duration(max(0.0, worst['closest']))} before the command would have been"
            f" stopped (slowest answer {format_duration(worst['longest'] or 0.0)}, TTL {format_duration(worst['ttl'])},"
            f" {utc_milliseconds(worst['ended_at'])}): the lease is about to lie; look at the backend, or take a longer"
            " --ttl"
        )
    lost = sum(run["outcome"] == "lost" for run in runs)
    if lost:
        found.append(f"the lease was lost in {lost} of {len(runs)} runs")
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that ``share`` of them do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
