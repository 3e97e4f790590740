"""The proposed TTL, and what is said of those that are configured."""

from __future__ import annotations

import pytest

from distlock.backends.probe import Probe
from distlock.deadline import SHORTEST_TTL, default_grace, hard_deadline
from distlock.doctor.measures import Pauses, Trips
from distlock.doctor.records import Records
from distlock.doctor.ttl import LONGEST_SENSIBLE, Configured, Proposal, findings, propose, slack
from distlock.renewal import Schedule
from fakes import a_grant

CALM = Pauses(1.5, 0.002)
FAST = Trips("renewals", 20, 0.001, 0.003)


def proposed(
    trips: Trips | None = FAST,
    pauses: Pauses = CALM,
    records: Records | None = None,
    *,
    bounds: tuple[float | None, float | None] = (None, None),
    recovery: float | None = None,
) -> Proposal:
    return propose(trips, pauses, records, Probe("a server", None, (), bounds[1], bounds[0]), recovery)


def test_the_default_will_do() -> None:
    found = proposed()
    assert (found.ttl, found.shortest, found.meets_recovery) == (30.0, SHORTEST_TTL, True)
    assert found.survives == pytest.approx(13.2)
    assert found.recovered_within == 32.0


@pytest.mark.parametrize("ttl", [3.0, 10.0, 30.0, 300.0])
def test_slack_is_what_a_schedule_leaves(ttl: float) -> None:
    schedule = Schedule(a_grant(1000.0, ttl), default_grace(ttl), chance=lambda: 1.0)
    assert slack(ttl) == pytest.approx(schedule.soft - schedule.next_try)
    assert slack(ttl) > 0
    assert hard_deadline(0, ttl) < ttl


@pytest.mark.parametrize(
    ("trips", "pauses", "records"),
    [
        (FAST._replace(longest=1.0), CALM, None),
        (FAST, Pauses(1.5, 2.0), None),
        (None, Pauses(1.5, 2.0), None),
        (FAST, CALM, Records(100, 86400.0, 5.0)),
    ],
    ids=["round trips", "pauses", "pauses alone", "records"],
)
def test_what_was_measured_asks_for_a_longer_one(trips: Trips | None, pauses: Pauses, records: Records | None) -> None:
    found = proposed(trips, pauses, records)
    assert found.ttl == found.shortest > 30.0
    need = max(10 * (2 * (trips.longest if trips else 0.0) + pauses.longest), 4 * (records.longest if records else 0.0))
    assert slack(found.ttl) >= need > slack(found.ttl - 1.0)


def test_no_more_than_makes_sense() -> None:
    assert proposed(FAST._replace(longest=1000.0)).ttl == LONGEST_SENSIBLE
    assert proposed(recovery=86400.0).ttl == LONGEST_SENSIBLE


@pytest.mark.parametrize(
    ("recovery", "ttl", "met"), [(60.0, 58.0, True), (20.5, 18.0, True), (5.0, 3.0, True), (4.9, 3.0, False)]
)
def test_recovery(recovery: float, ttl: float, met: bool) -> None:
    found = proposed(recovery=recovery)
    assert (found.ttl, found.meets_recovery) == (ttl, met)
    assert (found.recovered_within <= recovery) is met
    told = [noted.key for noted in findings(found, [], None, recovery)]
    assert told == ([] if met else ["recovery-not-met"])


def test_a_slow_server_does_not_meet_a_short_recovery() -> None:
    found = proposed(FAST._replace(longest=0.4), recovery=10.0)
    assert not found.meets_recovery
    assert found.ttl == found.shortest


def test_the_servers_bounds_count() -> None:
    assert proposed(bounds=(4.0, 20.0)).ttl == 20.0
    assert proposed(bounds=(45.0, None)).ttl == 45.0
    found = proposed(bounds=(40.0, None), recovery=30.0)
    assert (found.ttl, found.meets_recovery) == (40.0, False)


def test_bounds_that_nobody_comes_near_to_are_not_told() -> None:
    def told(*bounds: float) -> list[str]:
        return [reason for reason in proposed(bounds=(bounds[0], bounds[1])).reasons if "server grants" in reason]

    assert told(1.0, 9e9) == []
    assert told(4.0, 9e9) == ["the server grants at least 4s"]
    assert told(4.0, 40.0) == ["the server grants at least 4s and at most 40s"]


def keys(*ttls: float, found: Proposal | None = None, recovery: float | None = None, **bounds: float) -> list[str]:
    probe = Probe("a server", None, (), bounds.get("longest"), bounds.get("shortest"))
    configured = [Configured(ttl, "a file") for ttl in ttls]
    return [noted.key for noted in findings(found or proposed(recovery=recovery), configured, probe, recovery)]


def test_configured_ttls() -> None:
    assert keys(3.0, 30.0, 600.0) == []
    assert keys(2.0) == ["ttl-too-short"]
    assert keys(29.0, 60.0, found=proposed(FAST._replace(longest=1.0))) == ["ttl-too-short"]
    assert keys(601.0) == ["ttl-too-long"]
    assert keys(60.0, longest=40.0, shortest=4.0) == ["ttl-above-server"]
    assert keys(3.0, 4.0, longest=40.0, shortest=4.0) == ["ttl-below-server"]
    assert keys(58.0, 59.0, recovery=60.0) == ["ttl-above-recovery"]
    assert keys(59.0, recovery=1.0) == ["recovery-not-met"]
