"""When a child must be stopped so that it is dead before the server can give its lock away.

The lease ends no earlier than TTL after the instant BEFORE the answered request was sent. From that, 1 % is taken off
for clocks of different speed (as Redlock libraries do), and a margin for a late wake-up and for the time that killing
takes; both were measured at under 0.1 s with 64 busy processes on two cores.
"""

from __future__ import annotations

SHORTEST_TTL = 3.0
"""Seconds. Below this an ordinary pause of a machine is longer than what margin and grace leave."""


def hard_deadline(valid_from: float, ttl: float) -> float:
    """Everything of the child is to be dead at this instant: SIGKILL."""
    return valid_from + 0.99 * ttl - max(0.5, 0.05 * ttl)


def default_grace(ttl: float) -> float:
    """Seconds from the stop signal to SIGKILL; the stop signal is sent this long before the hard deadline."""
    return min(5.0, ttl / 6)


def longest_grace(ttl: float) -> float:
    """More would stop a child although two of three renewals could still be tried."""
    return ttl / 3
