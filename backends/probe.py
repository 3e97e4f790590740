"""What an engine finds when an operator asks whether its server is fit to keep locks."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """Something that breaks locks, or may."""

    meaning: str
    """What can happen because of it: a sentence for people."""
    evidence: str
    """The setting or state as it was found, by the server's own name for it."""
    remedy: str
    """What to do, an imperative."""


class Probe(NamedTuple):
    server: str
    """What answered: product, version, role. For people."""
    clock_offset: float | None
    """Seconds by which the server's wall clock is ahead of ours, give or take half a round trip; None if it tells none.
    No lease depends on it: times that people are shown do."""
    findings: tuple[Finding, ...]
    longest_ttl: float | None = None
    """Seconds; None where the server sets no bound."""
    shortest_ttl: float | None = None
