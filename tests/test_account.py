"""What is told of a run: that each event comes once, in the order of the story, and what the record says in the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from distlock.account import Account, Inherited, Keeping
from distlock.backends.base import Busy, ConfigurationError, Grant, LockState, Refused, Unavailable
from distlock.errors import Skipped
from distlock.journal import Journal, Limits
from distlock.log_target import LogTarget
from fakes import FakeClock, a_client, a_grant


def test_limits_are_those_of_the_journal() -> None:
    """Written twice: the supervisor must not load the journal."""
    assert (Keeping().runs, Keeping().seconds) == Limits()


class Told:
    """An account with a clock that tests move, and what came of it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DISTLOCK_STATE_DIR", str(folder))
        self.clock = FakeClock()
        self.notes: list[str] = []
        self._journal = Journal(folder / "journal.db")
        self._log = folder / "log"
        self.account = Account(
            Keeping(LogTarget("file", str(self._log), "json")),
            name="nightly",
            backend="prod",
            owner="me",
            pid=4711,
            label=None,
            ttl=30.0,
            grace=5.0,
            clock=self.clock,
            note=self.notes.append,
        )

    def end(self) -> tuple[list[str], dict[str, object]]:
        """Events, and the record."""
        self.account.close()
        (run,) = self._journal.runs()
        assert self.notes == []
        events = (
            [json.loads(line)["event"] for line in self._log.read_text().splitlines()] if self._log.exists() else []
        )
        return events, dict(zip(run.keys(), run, strict=True))

    def grant(self) -> Grant:
        grant = a_grant(self.clock.now)
        self.account.granted(grant)
        return grant


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(tmp_path, monkeypatch)


def test_a_run_that_succeeds(told: Told) -> None:
    told.clock.now += 7.0  # --jitter
    told.account.asking()
    told.account.waiting(LockState("nightly", True, 6, a_client("other"), 30.0, 20.0, ()))
    told.clock.now += 2.0
    told.grant()
    told.account.started()
    told.clock.now += 40.0
    told.account.renewal_failed("blip")
    told.account.renewals.answered(0.5, 9.0)
    told.account.ended(0, None)
    told.clock.now += 1.0
    assert told.account.ran_for == 41.0
    told.account.released("")
    events, run = told.end()
    assert events == ["waiting", "granted", "renewal failed", "released"]
    assert (run["outcome"], run["exit_code"], run["waited"], run["held"], run["token"]) == (
        "succeeded",
        0,
        2.0,
        41.0,
        7,
    )
    assert (run["renewals"], run["failures"], run["longest"], run["closest"]) == (1, 1, 0.5, 9.0)
    assert run["slack"] == pytest.approx(29.7 - 1.5 - 5 - 10)


@pytest.mark.parametrize("who", ["renewer", "supervisor", "both"])
def test_a_lost_lease_is_told_once_and_is_no_success(told: Told, who: str) -> None:
    told.grant()
    told.account.started()
    if who != "supervisor":
        told.account.lost("gone")
    told.account.stopped("supervisor")
    told.account.ended(0, None if who == "renewer" else "gone")
    assert told.account.ran_for is None
    told.account.released("")
    events, run = told.end()
    assert sorted(events) == ["granted", "lost", "stopped"]
    assert (run["outcome"], run["exit_code"], run["reason"]) == ("lost", 0, "gone")


@pytest.mark.parametrize(
    ("status", "outcome", "code"),
    [
        (3 << 8, "failed", 3),
        (15, "failed", 143),
        (127 << 8, "failed", 127),
        (-1, "failed", None),
        (None, "killed", None),
    ],
)
def test_other_ends(told: Told, status: int | None, outcome: str, code: int | None) -> None:
    """None: the supervisor is dead and has said nothing."""
    told.grant()
    if status is not None:
        told.account.ended(status, None)
    assert told.account.ran_for is None
    told.account.released("no answer")
    events, run = told.end()
    assert events == ["granted", "not released"]
    assert (run["outcome"], run["exit_code"]) == (outcome, code)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Busy("held"), "busy"),
        (Unavailable("held"), "unavailable"),
        (Refused("held"), "refused"),
        (ConfigurationError("held"), "misconfigured"),
        (Skipped("held"), "skipped"),
        (None, "cancelled"),
        (RuntimeError("a secret, perhaps"), "error"),
    ],
)
def test_without_the_lock(told: Told, error: BaseException | None, outcome: str) -> None:
    told.clock.now += 3.0
    told.account.not_had(error)
    events, run = told.end()
    assert events == ["not had"]
    assert (run["outcome"], run["waited"], run["granted_at"], run["held"]) == (outcome, 3.0, None, None)
    assert run["reason"] == ("held" if outcome not in ("cancelled", "error") else None)


def test_a_failure_inside_after_the_grant(told: Told) -> None:
    told.grant()
    told.clock.now += 3.0
    told.account.not_had(RuntimeError("x"))
    events, run = told.end()
    assert events == ["granted"]
    assert (run["outcome"], run["held"]) == ("error", 3.0)


def test_in_the_place_of_a_dead_renewer(told: Told) -> None:
    told.clock.now += 60.0
    told.account.inherit(Inherited(waited=2.0, at=told.clock.now - 20.0, token=7), 9, "the renewer is dead")
    events, run = told.end()
    assert events == ["lost", "not released"]
    assert (run["outcome"], run["exit_code"], run["waited"], run["held"], run["token"]) == ("lost", 137, 2.0, 20.0, 7)


def test_a_command_that_ran_without_a_lock(told: Told) -> None:
    told.account.not_had(Unavailable("no answer"))
    told.account.started()
    told.account.unlocked("no answer")
    told.clock.now += 9.0
    told.account.ended(0, None)
    assert told.account.ran_for is None
    events, run = told.end()
    assert events == ["not had", "unlocked", "ended"]
    assert (run["outcome"], run["exit_code"], run["reason"]) == ("unlocked", 0, "no answer")
    assert (run["granted_at"], run["held"], run["token"]) == (None, None, None)


def test_a_command_that_went_on_without_its_lease(told: Told) -> None:
    told.grant()
    told.account.started()
    told.account.unlocked("no answer")
    told.account.ended(0, None, "no answer")
    assert told.account.ran_for is None, "it is no success that anybody may count on"
    told.account.released("no answer")
    events, run = told.end()
    assert events == ["granted", "unlocked", "not released"]
    assert (run["outcome"], run["exit_code"], run["reason"], run["token"]) == ("unlocked", 0, "no answer", 7)


def test_a_command_whose_lease_came_back(told: Told) -> None:
    told.grant()
    told.account.started()
    told.account.unlocked("no answer")
    told.account.ended(0, None)
    told.account.released("")
    events, run = told.end()
    assert events == ["granted", "unlocked", "released"]
    assert (run["outcome"], run["reason"]) == ("succeeded", None)


@pytest.mark.parametrize("had", [False, True])
def test_without_a_lock_and_without_a_renewer(told: Told, had: bool) -> None:
    told.clock.now += 60.0
    told.account.inherit(
        Inherited(2.0, told.clock.now - 20.0, 7 if had else None, is_locked=had), 0, None, is_open=True
    )
    _, run = told.end()
    assert (run["outcome"], run["exit_code"], run["granted_at"] is not None) == ("unlocked", 0, had)


@pytest.mark.parametrize("trouble", ["journal", "log", "state"])
def test_what_cannot_be_written_is_noted_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    told = Told(tmp_path, monkeypatch)
    spoil: dict[str, Callable[[], object]] = {
        "journal": (tmp_path / "journal.db").mkdir,
        "log": (tmp_path / "log").mkdir,
        "state": lambda: monkeypatch.setenv("DISTLOCK_STATE_DIR", "relative"),
    }
    spoil[trouble]()
    told.grant()
    told.account.ended(0, None)
    told.account.released("")
    told.account.close()
    assert len(told.notes) == 1
