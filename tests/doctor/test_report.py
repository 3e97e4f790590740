"""The examination against an engine whose fate the test writes down. Real servers: tests/run/test_doctor.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from distlock.backend_choice import Chosen
from distlock.backends.base import DistlockError, Grant, LeaseLost, OtherHolders, Refused, Safety, Unavailable
from distlock.backends.probe import Finding, Probe
from distlock.clock import boottime
from distlock.config import Config
from distlock.doctor import report
from distlock.doctor.measures import SCRATCH, Pauses
from distlock.doctor.report import Report, examine, report_view
from fakes import FakeClock, ScriptedBackend, a_client


@pytest.fixture
def closed() -> list[str]:
    return []


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: list[str]) -> ScriptedBackend:
    """On real time: what is measured is how long a Python call takes."""
    made = ScriptedBackend(FakeClock())

    def release(grant: Grant, _: float) -> None:
        made.note(f"release {grant.token}")
        made.free()

    monkeypatch.setattr(made, "release", release)
    monkeypatch.setattr(made, "close", lambda: closed.append("closed"))
    monkeypatch.setenv("DISTLOCK_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(report, "watch_pauses", lambda seconds: Pauses(seconds, 0.001))
    monkeypatch.setattr(report, "open_backend", lambda _url, _environment: made)
    return made


def chosen(require: Safety | None = None) -> Chosen:
    return Chosen("redis://h", "prod", "FILE: backend", None, require)


def examined(require: Safety | None = None, recovery: float | None = None) -> Report:
    return examine(Config(), chosen(require), recovery)


def keys(found: Report) -> list[str]:
    return [noted.key for noted in found.found]


def test_all_is_well(engine: ScriptedBackend, closed: list[str]) -> None:
    found = examined()
    assert (keys(found), found.verdict, found.failure) == ([], "fine", None)
    assert found.trips
    assert (found.trips.of, found.trips.number) == ("renewals", 20)
    assert found.trips.acquire is not None
    assert [what for _, what in engine.log] == ["probe", "enqueue", "poll", *["renew"] * 20, "release 42"]
    assert [(ticket._request.name, ticket.closed) for ticket in engine.tickets] == [(SCRATCH, True)]
    assert closed == ["closed"]


def test_what_the_engine_found_is_told_as_it_is(engine: ScriptedBackend) -> None:
    finding = Finding("It may forget.", "maxmemory-policy allkeys-lru", "Set noeviction.")
    engine.probed = Probe("a server", 0.1, (finding,))
    found = examined()
    assert found.verdict == "warnings"
    assert [noted.finding for noted in found.found] == [finding]


@pytest.mark.parametrize(("offset", "words"), [(3.04, "3s ahead of ours"), (-7200.0, "2h behind ours")])
def test_a_clock_that_is_off(engine: ScriptedBackend, offset: float, words: str) -> None:
    engine.probed = Probe("a server", offset, ())
    found = examined()
    assert keys(found) == ["clock-offset"]
    assert words in found.found[0].finding.evidence
    engine.probed = Probe("a server", 1.0 if offset > 0 else -1.0, ())
    assert keys(examined()) == []


@pytest.mark.parametrize(
    ("error", "verdict"), [(Unavailable("h is down"), "unreachable"), (Refused("wrong password"), "refused")]
)
def test_no_answer(engine: ScriptedBackend, closed: list[str], error: DistlockError, verdict: str) -> None:
    engine.failure = error
    found = examined()
    assert (found.verdict, found.failure, found.probe, found.trips) == (verdict, error, None, None)
    assert report_view(found)["problem"] == str(error)
    assert closed == ["closed"]


def test_a_client_library_that_does_not_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTLOCK_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(report, "watch_pauses", lambda seconds: Pauses(seconds, 0.001))
    monkeypatch.setitem(sys.modules, "distlock.backends.redis", None)
    found = examined()
    assert (found.verdict, found.probe) == ("unreachable", None)
    assert "does not import" in str(found.failure)


def test_a_login_that_may_only_look(engine: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise Refused("no permission to run SET")

    monkeypatch.setattr(engine, "enqueue", refuse)
    found = examined()
    assert keys(found) == ["not-allowed"]
    assert found.found[0].finding.evidence == "no permission to run SET"
    assert found.trips
    assert found.trips.of == "reads"


def test_another_doctor_has_the_lock(engine: ScriptedBackend) -> None:
    """For as long as this one waits."""
    engine.hold(a_client("another"))
    engine.clock.now = boottime()
    found = examined()
    assert (keys(found), found.verdict) == (["scratch-lock-busy"], "fine")
    assert found.trips
    assert found.trips.of == "reads"
    assert engine.tickets[0].closed
    assert not [what for _, what in engine.log if what.startswith("release")]


def test_somebody_holds_it_with_other_holders(engine: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise OtherHolders("held with --max-holders 3")

    monkeypatch.setattr(engine, "enqueue", refuse)
    assert keys(examined()) == ["scratch-lock-busy"]


def test_the_lock_is_taken_away(engine: ScriptedBackend) -> None:
    renewals = 0

    def renew(grant: Grant, _: float) -> Grant:
        nonlocal renewals
        renewals += 1
        if renewals == 3:
            raise LeaseLost("somebody purged it")
        return grant

    engine.on_renew = renew
    found = examined()
    assert found.trips
    assert (keys(found), found.trips.number) == ([], 2)


def test_the_server_goes_away_in_between(engine: ScriptedBackend) -> None:
    def renew(_: Grant, timeout: float) -> Grant:
        raise Unavailable(f"gone, {timeout}")

    engine.on_renew = renew
    found = examined()
    assert (found.verdict, str(found.failure)) == ("unreachable", "gone, 2.0")
    assert found.probe == engine.probed, "what it had said is shown all the same"
    assert engine.times("release 42"), "the lock is given back if that can be done"


@pytest.mark.usefixtures("engine")
def test_a_class_that_it_has_not() -> None:
    assert keys(examined("efficiency")) == []
    found = examined("correctness")
    assert keys(found) == ["class-refused"]
    assert "prod is for efficiency locks" in found.found[0].finding.evidence


VIEW = {
    "version": None,
    "backend": None,
    "chosen_by": None,
    "verdict": None,
    "problem": None,
    "server": None,
    "clock_offset_seconds": None,
    "first_answer_seconds": None,
    "round_trips": ["of", "count", "median_seconds", "longest_seconds", "acquire_seconds"],
    "pauses": ["watched_seconds", "longest_seconds"],
    "renewals_on_record": ["runs", "since_seconds", "longest_seconds"],
    "ttl": [
        "proposed_seconds",
        "shortest_seconds",
        "server_shortest_seconds",
        "server_longest_seconds",
        "survives_seconds",
        "recovered_within_seconds",
        "recovery_seconds",
        "meets_recovery",
        "reasons",
    ],
    "findings": [],
}


def test_keys_of_json(engine: ScriptedBackend) -> None:
    engine.probed = Probe("a server", 9.0, (), longest_ttl=40.0)
    view = report_view(examined(recovery=60.0))
    assert json.loads(json.dumps(view)) == view
    assert list(view) == list(VIEW)
    for key, inner in VIEW.items():
        part = view[key]
        assert list(part) == inner if isinstance(part, dict) else True, key
    assert view["version"] == 1
    (finding,) = (
        [part for part in view["findings"] if isinstance(part, dict)] if isinstance(view["findings"], list) else []
    )
    assert list(finding) == ["key", "about", "level", "meaning", "evidence", "remedy"]
