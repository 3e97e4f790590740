"""The arithmetic of a lease's end: for every TTL that is allowed, there is time for what has to happen before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.deadline import SHORTEST_TTL, default_grace, hard_deadline, longest_grace
from distlock.durations import MAX_SECONDS

ttls = st.floats(SHORTEST_TTL, MAX_SECONDS)
instants = st.floats(0.0, MAX_SECONDS)


@pytest.mark.parametrize(
    ("ttl", "hard"), [(3.0, 2.47), (10.0, 9.4), (30.0, 28.2), (60.0, 56.4), (600.0, 564.0), (86400.0, 81216.0)]
)
def test_hard(ttl: float, hard: float) -> None:
    assert hard_deadline(0.0, ttl) == pytest.approx(hard, abs=1e-6)
    assert hard_deadline(5000.0, ttl) == pytest.approx(5000.0 + hard, abs=1e-6)


@pytest.mark.parametrize(("ttl", "grace"), [(3.0, 0.5), (6.0, 1.0), (30.0, 5.0), (31.0, 5.0), (86400.0, 5.0)])
def test_grace(ttl: float, grace: float) -> None:
    assert default_grace(ttl) == pytest.approx(grace)


@given(ttls, instants)
def test_all_is_dead_before_the_lease_ends_with_a_margin_for_the_killing(ttl: float, start: float) -> None:
    margin = start + ttl - hard_deadline(start, ttl)
    assert margin >= 0.5
    assert margin >= 0.01 * ttl


@given(ttls, instants)
def test_a_blip_of_a_third_of_the_lease_ends_no_job(ttl: float, start: float) -> None:
    """Renewed at a third, even the longest grace leaves time to try again before the stop signal."""
    soft = hard_deadline(start, ttl) - longest_grace(ttl)
    assert soft - (start + ttl / 3) >= 0.15 * ttl
    assert longest_grace(ttl) == pytest.approx(ttl / 3)


@given(ttls)
def test_the_default_grace_is_allowed_and_none(ttl: float) -> None:
    assert 0.0 < default_grace(ttl) <= longest_grace(ttl)


@given(ttls, ttls, instants)
def test_a_longer_lease_ends_later(one: float, other: float, start: float) -> None:
    shorter, longer = sorted((one, other))
    assert hard_deadline(start, shorter) <= hard_deadline(start, longer)
