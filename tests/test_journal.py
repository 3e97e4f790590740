"""The journal: what it keeps, that it keeps its size and never its sums back, and that nothing it meets is fatal."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.backends.base import Unavailable
from distlock.history_view import run_view
from distlock.journal import LARGEST, MOST_LOCKS, OTHER_LOCKS, Journal, Limits
from distlock.measures import HOLD_BOUNDS, Histogram, Renewals, Run
from distlock.names import check_name
from distlock.sums import Sums
from processes import wait_until


def a_run(name: str = "nightly", **changes: object) -> Run:
    run = Run(
        name, "prod", "0a", 4711, None, 30.0, "succeeded", 1e9, 0.5, 1e9 + 0.5, 12.0, 42, 0, None, 13.2, Renewals()
    )
    return run._replace(**changes)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal.db"


def test_what_is_kept_of_a_run(path: Path) -> None:
    renewals = Renewals()
    for latency, left in ((0.02, 5.0), (0.04, 3.0)):
        renewals.answered(latency, left)
    renewals.failures = 3
    journal = Journal(path)
    assert (journal.runs(), journal.sums(), journal.refusals()) == ([], {}, {})
    assert not path.exists()  # asking makes nothing
    before = time.time()
    journal.add(a_run(label="x", renewals=renewals, reason="because"))
    (run,) = Journal(path).runs()
    assert before <= run["ended_at"] <= time.time()
    found = {key: run[key] for key in run.keys() if key not in ("id", "ended_at")}  # noqa: SIM118 - a Row is no mapping
    assert found == a_run(label="x", reason="because")._asdict() | {
        "renewals": 2,
        "failures": 3,
        "mean": pytest.approx(0.03),
        "longest": 0.04,
        "closest": 3.0,
    }
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_runs_of_one_lock_and_of_some_time(path: Path) -> None:
    journal = Journal(path)
    for name in ("a", "b", "a"):
        journal.add(a_run(name))
    assert [run["name"] for run in journal.runs()] == ["a", "b", "a"]
    assert len(journal.runs("a")) == 2
    assert journal.runs("nosuch") == []
    assert len(journal.runs(since=time.time() - 60)) == 3
    assert journal.runs(since=time.time() + 1) == []


def test_old_runs_go_and_their_sums_stay(path: Path) -> None:
    journal = Journal(path, Limits(runs=5))
    for index in range(12):
        journal.add(a_run(token=index))
    assert [run["token"] for run in journal.runs()] == [7, 8, 9, 10, 11]
    assert journal.sums()["nightly", "prod"].outcomes == {"succeeded": 12}
    time.sleep(0.01)
    Journal(path, Limits(seconds=0.005)).add(a_run(token=99))
    assert [run["token"] for run in journal.runs()] == [99]
    sums = journal.sums()["nightly", "prod"]
    assert (sums.outcomes, sums.holds.count, sums.holds.total) == ({"succeeded": 13}, 13, 13 * 12.0)


def test_a_full_file_makes_room(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distlock.journal.LARGEST", 40 * 4096)
    journal = Journal(path)
    for index in range(300):
        journal.add(a_run(token=index, reason="x" * 900))
    assert path.stat().st_size <= 40 * 4096 < LARGEST
    tokens = [run["token"] for run in journal.runs()]
    assert tokens[-1] == 299
    assert tokens == list(range(tokens[0], 300))
    assert journal.sums()["nightly", "prod"].outcomes == {"succeeded": 300}


def test_locks_without_end_have_sums_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distlock.journal.MOST_LOCKS", 3)
    journal = Journal(path)
    for index in (0, 1, 2, 3, 4, 0, 4):
        journal.add(a_run(f"job-{index}"))
        journal.add_refusal(f"/srv/{index}")
    found = {name: sums.acquisitions["granted"] for (name, _), sums in journal.sums().items()}
    assert found == {"job-0": 2, "job-1": 1, "job-2": 1, OTHER_LOCKS: 3}
    assert journal.refusals() == {"/srv/0": 2, "/srv/1": 1, "/srv/2": 1, OTHER_LOCKS: 3}
    with pytest.raises(Exception, match="braces"):
        check_name(OTHER_LOCKS)
    assert MOST_LOCKS >= 400  # crontab lines


def test_a_damaged_file_is_put_aside(path: Path) -> None:
    journal = Journal(path)
    journal.add(a_run())
    for damage in (b"x" * 5000, b"SQLite format 3\0" + b"\1" * 5000):
        path.write_bytes(damage)
        with pytest.raises(Unavailable, match=f"^the journal {path}: "):
            journal.runs()
        journal.add(a_run(token=7))
        assert [run["token"] for run in journal.runs()] == [7]
        assert path.with_suffix(".damaged").read_bytes() == damage


def test_a_journal_of_a_release_without_indexes_goes_on(path: Path) -> None:
    journal = Journal(path)
    journal.add(a_run())
    sql = sqlite3.connect(path)
    sql.execute("ALTER TABLE run DROP COLUMN holder_index")
    sql.commit()
    sql.close()
    (run,) = journal.runs()
    assert run_view(run)["holder_index"] is None
    journal.add(a_run(holder_index=2))
    assert [run_view(run)["holder_index"] for run in journal.runs()] == [None, 2]


def test_another_layout_is_left_alone(path: Path) -> None:
    journal = Journal(path)
    journal.add(a_run())
    with sqlite3.connect(path) as sql:
        sql.execute("PRAGMA user_version = 2")
    sql.close()
    before = path.read_bytes()
    for ask in (lambda: journal.add(a_run()), journal.runs, journal.sums):
        with pytest.raises(Unavailable, match="unknown layout version 2"):
            ask()
    assert path.read_bytes() == before


def test_who_may_not_write_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="File exists"):
        Journal(tmp_path / "file/journal.db").add(a_run())
    with pytest.raises(Unavailable, match="unable to open"):
        Journal(tmp_path).add(a_run())


def test_a_locked_journal_is_waited_for_a_little(path: Path) -> None:
    journal = Journal(path, busy=0.1)
    journal.add(a_run())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    start = time.monotonic()
    with pytest.raises(Unavailable, match="locked"):
        journal.add(a_run())
    assert 0.05 < time.monotonic() - start < 2
    other.close()
    journal.add(a_run())
    assert len(journal.runs()) == 2


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_journal import a_run, Journal
for _ in range(int(sys.argv[3])):
    Journal(Path(sys.argv[1]), busy=20.0).add(a_run())
"""


def write_in_the_background(path: Path, times: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent), str(times)])


def test_many_writers_at_once_from_the_first_on(path: Path) -> None:
    writers = [write_in_the_background(path, 10) for _ in range(8)]
    assert [writer.wait(60) for writer in writers] == [0] * 8
    assert len(Journal(path).runs()) == Journal(path).sums()["nightly", "prod"].holds.count == 80


def test_a_writer_killed_in_the_middle_harms_nothing(path: Path) -> None:
    Journal(path).add(a_run())
    for delay in (0.0, 0.003, 0.01, 0.02, 0.05):
        before = len(Journal(path).runs())
        writer = write_in_the_background(path, 100_000)
        try:
            wait_until(lambda before=before: len(Journal(path).runs()) > before, 30)  # type: ignore[misc]
            time.sleep(delay)
        finally:
            os.kill(writer.pid, signal.SIGKILL)
            writer.wait()
        journal = Journal(path)
        journal.add(a_run())
        assert len(journal.runs()) == journal.sums()["nightly", "prod"].holds.count


@pytest.mark.parametrize("stored", ["", "x", "[]", '{"waits": 5, "outcomes": [], "ttl": "x"}', '{"holds": [[1], 2]}'])
def test_sums_that_cannot_be_read_count_from_zero(stored: str) -> None:
    sums = Sums(stored)
    sums.add(a_run(), 5.0)
    again = Sums(sums.stored())
    assert (again.stored(), again.holds.count, again.outcomes) == (sums.stored(), 1, {"succeeded": 1})


@given(st.lists(st.floats(0, 1e6), max_size=50))
def test_a_histogram_counts_each_value_once(values: list[float]) -> None:
    histogram = Histogram(HOLD_BOUNDS)
    for value in values:
        histogram.add(value)
    assert histogram.count == len(values)
    for index, bound in enumerate(HOLD_BOUNDS):
        assert sum(histogram.counts[: index + 1]) == sum(value <= bound for value in values)


def test_texts_that_are_no_text(path: Path) -> None:
    journal = Journal(path)
    journal.add(a_run(label="\udcff\n", reason="y" * 5000))
    (run,) = journal.runs()
    assert (run["label"], len(run["reason"])) == ("\\udcff\n", 1000)


def test_the_last_space_on_a_disk_is_left_to_the_locks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distlock.journal._ROOM", 1 << 60)
    with pytest.raises(Unavailable, match="left to the locks"):
        Journal(path).add(a_run())
    assert not path.exists()
