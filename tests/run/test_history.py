"""What a run leaves in the journal, and ``distlock history``."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from distlock.history_view import findings
from distlock.journal import Journal
from distlock.measures import Renewals, Run
from processes import DISTLOCK, Lab, renewer_of, wait_until
from terminals import Terminal

RUN_KEYS = [
    "name",
    "backend",
    "outcome",
    "exit_code",
    "reason",
    "token",
    "owner",
    "pid",
    "label",
    "asked_at",
    "granted_at",
    "ended_at",
    "wait_seconds",
    "hold_seconds",
    "ttl_seconds",
    "renewals",
    "renewal_failures",
    "renewal_latency_mean_seconds",
    "renewal_latency_max_seconds",
    "renewal_left_min_seconds",
    "holder_index",
]


def history(lab: Lab, *arguments: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [DISTLOCK, "history", *arguments, "--json"], env=lab.environment, capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert list(told) == ["version", "runs", "warnings"]
    assert told["version"] == 1
    found: list[dict[str, object]] = told["runs"]
    return found


def outcomes(lab: Lab) -> list[tuple[object, object]]:
    return [(run["outcome"], run["exit_code"]) for run in history(lab)]


def test_a_run_is_there_when_the_command_has_returned(lab: Lab) -> None:
    done = lab.run("--label", "x", "job", "sh", "-c", 'printf %s "$DISTLOCK_OWNER $DISTLOCK_FENCING_TOKEN"; sleep 0.3')
    owner, token = done.stdout.decode().split()
    (run,) = history(lab)
    assert list(run) == RUN_KEYS
    assert (run["name"], run["outcome"], run["exit_code"], run["label"]) == ("job", "succeeded", 0, "x")
    assert (run["owner"], run["token"], run["backend"]) == (owner, int(token), lab.backend)
    assert (run["ttl_seconds"], run["renewals"], run["renewal_failures"]) == (30.0, 0, 0)
    assert isinstance(run["hold_seconds"], float)
    assert 0.3 <= run["hold_seconds"] < 5
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(run[key])) for key in RUN_KEYS[9:12])
    assert str(run["asked_at"]) <= str(run["granted_at"]) <= str(run["ended_at"])


def test_each_end_has_its_outcome(lab: Lab) -> None:
    lab.run("job", "true")
    lab.run("job", "sh", "-c", "exit 3")
    lab.run("job", "sh", "-c", "kill -TERM $$")
    odd = lab.folder / "odd"
    odd.write_text("#!/no/such/interpreter\n")
    odd.chmod(0o755)
    lab.run("job", str(odd))
    holder = lab.start("job", "sleep", "60")
    wait_until(lambda: (lab.folder / "state/leases").is_dir() and os.listdir(lab.folder / "state/leases"))
    lab.run("-n", "job", "true")
    lab.run("-w", "0.3", "job", "true")
    waiter = lab.start("job", "true")
    wait_until(lambda: lab.waiters() == 1)
    waiter.terminate()
    waiter.wait(10)
    lab.run("-n", "-b", "redis://127.0.0.1:1", "job", "true")
    holder.terminate()
    holder.wait(10)
    assert outcomes(lab) == [
        *[("succeeded", 0), ("failed", 3), ("failed", 128 + 15), ("failed", 127)],
        *[("busy", None), ("busy", None), ("cancelled", None), ("unavailable", None), ("failed", 128 + 15)],
    ]
    waited = [run["wait_seconds"] for run in history(lab) if run["outcome"] == "busy"]
    assert isinstance(waited[1], float)
    assert 0.25 < waited[1] < 3
    reasons = [str(run["reason"]) for run in history(lab) if run["outcome"] == "unavailable"]
    assert "127.0.0.1:1" in reasons[0]


def test_nothing_is_recorded_of_what_never_asked(lab: Lab) -> None:
    for arguments in (["job", "no-such-command"], ["--ttl", "1", "job", "true"], ["-b", "nosuch:", "job", "true"]):
        assert lab.run(*arguments).returncode
    assert history(lab) == []
    assert not (lab.folder / "state/journal.db").exists()


def test_renewals_and_their_latencies(lab: Lab) -> None:
    lab.run("--ttl", "3", "job", "sleep", "2.5")
    (run,) = history(lab)
    assert isinstance(run["renewals"], int)
    assert run["renewals"] >= 2
    numbers = [run[key] for key in RUN_KEYS[17:20]]
    assert all(isinstance(number, float) and 0 < number < 3 for number in numbers), numbers


@pytest.mark.parametrize("which", ["supervisor", "renewer"])
def test_a_killed_half_is_recorded_by_the_other(lab: Lab, which: str) -> None:
    run = lab.start("--ttl", "3", "job", "sh", "-c", "echo started; exec sleep 60")
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    assert subprocess.run([DISTLOCK, "inspect", "-q", "job"], env=lab.environment, check=False).returncode == 0
    os.kill(run.pid if which == "supervisor" else renewer_of(run.pid), signal.SIGKILL)
    run.wait(20)
    wait_until(lambda: outcomes(lab))
    (found,) = history(lab)
    assert found["outcome"] == ("killed" if which == "supervisor" else "lost")
    assert isinstance(found["hold_seconds"], float)
    assert found["token"]


def test_a_journal_that_cannot_be_written_delays_nothing(lab: Lab) -> None:
    """Whoever has it locked: the command's end and the release come first."""
    lab.run("job", "true")
    other = sqlite3.connect(lab.folder / "state/journal.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        start = time.monotonic()
        done = lab.run("job", "true")
        assert (done.returncode, done.stderr) == (0, b"")
        assert time.monotonic() - start < 3
    finally:
        other.close()
    wait_until(lambda: len(history(lab)) == 2, 10)  # it waited, though nobody waited for it


@pytest.mark.parametrize("state", ["a file", "a folder in the way"])
def test_a_journal_that_is_none_is_a_word_with_v(lab: Lab, state: str) -> None:
    place = lab.folder / "state"
    if state == "a file":
        place.touch()
    else:
        (place / "journal.db").mkdir(parents=True)
    assert lab.run("job", "true").stderr == b""
    done = lab.run("-v", "job", "true")
    (line,) = [line for line in done.stderr.decode().splitlines() if "not recorded" in line]
    assert line.startswith(f"distlock: not recorded: the journal {place}/journal.db: ")
    assert done.returncode == 0


def test_what_the_configuration_says_of_it(lab: Lab) -> None:
    path = lab.folder / "c.toml"
    path.write_text("[journal]\nruns = 2\n")
    for code in "123":
        lab.run("--config", str(path), "job", "sh", "-c", f"exit {code}")
    assert outcomes(lab) == [("failed", 2), ("failed", 3)]
    path.write_text("[journal]\nenabled = false\n")
    lab.run("--config", str(path), "job", "true")
    assert len(history(lab)) == 2
    path.write_text("[journal]\nenabled = false\n[metrics]\ntextfile = 'x'\n")
    done = lab.run("--config", str(path), "job", "true")
    assert (done.returncode, b"made from the journal" in done.stderr) == (78, True)


def test_a_journal_that_is_a_fifo_keeps_nobody(lab: Lab) -> None:
    (lab.folder / "state").mkdir()
    os.mkfifo(lab.folder / "state/journal.db")
    start = time.monotonic()
    assert lab.run("job", "true").returncode == 0
    assert time.monotonic() - start < 5


# -- the command -------------------------------------------------------------------------------------------------------


def test_table_in_a_pipe(lab: Lab) -> None:
    lab.run("job a", "true")
    lab.run("job b", "sh", "-c", "exit 3")
    done = subprocess.run([DISTLOCK, "history"], env=lab.environment, capture_output=True, text=True, check=True)
    title, first, second = done.stdout.splitlines()
    assert title.split()[:4] == ["ENDED", "NAME", "OUTCOME", "CODE"]
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  job a  succeeded +0 ", first)
    assert "job b  failed" in second
    assert "\x1b" not in done.stdout
    assert "█" not in done.stdout
    assert len(history(lab, "job a")) == 1
    assert history(lab, "nosuch") == []
    assert len(history(lab, "--since", "1h")) == 2
    assert history(lab, "--since", "0") == []
    refused = subprocess.run(
        [DISTLOCK, "history", "--since", "x"], env=lab.environment, capture_output=True, check=False
    )
    assert (refused.returncode, refused.stderr.startswith(b"distlock: --since: 'x' is not")) == (2, True)


def test_timeline_at_a_terminal(lab: Lab) -> None:
    lab.run("job", "sleep", "0.3")
    with Terminal([DISTLOCK, "history"], lab.environment) as terminal:
        shown = terminal.read_until("held")
    assert re.search("job[^\n]*█", shown)
    assert "succeeded" in shown  # whole, on 80 columns


def test_a_journal_of_another_layout_is_told(lab: Lab) -> None:
    lab.run("job", "true")
    with sqlite3.connect(lab.folder / "state/journal.db") as sql:
        sql.execute("PRAGMA user_version = 9")
    sql.close()
    for command in ("history", "metrics"):
        done = subprocess.run([DISTLOCK, command], env=lab.environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1)
        assert "unknown layout version 9" in done.stderr
    assert b"unknown layout version 9" in lab.run("-v", "job", "true").stderr


# -- a lease about to lie ----------------------------------------------------------------------------------------------


def journal_of(folder: Path, *runs: tuple[float, float | None, str]) -> Journal:
    """Runs with a TTL of 30 s and 12 s of slack: how long held, what was left at the latest answer, outcome."""
    journal = Journal(folder / "journal.db")
    for held, left, outcome in runs:
        renewals = Renewals()
        if left is not None:
            renewals.answered(12.0 - left, left)
        journal.add(Run("job", "prod", "o", 1, None, 30.0, outcome, 0.0, 0.0, 1.0, held, 5, 0, None, 12.0, renewals))
    return journal


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([(5.0, None, "succeeded")] * 9, []),
        ([(5.0, None, "succeeded")] * 9 + [(28.0, None, "succeeded")], ["within 28s, near the TTL of 30s"]),
        ([(28.0, None, "succeeded")] * 4, []),  # too few to know
        ([(3600.0, 11.9, "succeeded")] * 9, []),  # lives by its renewals, and well
        ([(40.0, 5.9, "succeeded")], ["answered 5.9s before the command would have been stopped (slowest answer 6.1s"]),
        ([(40.0, 6.1, "succeeded")], []),
        ([(40.0, -1.0, "lost"), (40.0, 11.0, "succeeded")], ["answered 0s before", "lost in 1 of 2 runs"]),
    ],
)
def test_what_is_pointed_out(tmp_path: Path, runs: list[tuple[float, float | None, str]], said: list[str]) -> None:
    found = findings(journal_of(tmp_path, *runs).runs())
    assert len(found) == len(said)
    for finding, part in zip(found, said, strict=True):
        assert (finding.name, finding.backend) == ("job", "prod")
        assert part in finding.text


def test_a_slow_backend_is_pointed_out_by_the_command(lab: Lab) -> None:
    """A renewal that the file's lock held up until shortly before the margin."""
    (lab.folder / "state").mkdir()
    journal_of(lab.folder / "state", (40.0, 2.0, "succeeded"))
    done = subprocess.run([DISTLOCK, "history"], env=lab.environment, capture_output=True, text=True, check=True)
    assert "about to lie" in done.stderr
    told = subprocess.run(
        [DISTLOCK, "history", "--json"], env=lab.environment, capture_output=True, text=True, check=True
    )
    (warning,) = json.loads(told.stdout)["warnings"]
    assert list(warning) == ["name", "backend", "text"]
    assert told.stderr == ""


def test_nobody_else_can_read_it(lab: Lab) -> None:
    lab.run("job", "true")
    for path in (lab.folder / "state").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path
    descriptor = os.open(lab.folder / "state/journal.db", os.O_RDWR)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it open any more
    finally:
        os.close(descriptor)
