"""The benchmarks' arithmetic, and that they still run. No figure is judged here: that would be a timed test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The package lies at the root, which must not stay on the path: `cli` and `backends` lie there too.
sys.path.append(str(ROOT))
from benchmarks import memory, peers, processes, start_up  # noqa: E402
from benchmarks.figures import Sample, best  # noqa: E402
from benchmarks.report import Target, ratios, table, timings  # noqa: E402
from benchmarks.stamping_child import Turn, gaps, make_child, turns  # noqa: E402

sys.path.remove(str(ROOT))


@pytest.mark.parametrize(
    ("values", "low", "median", "high"),
    [
        ([7.0], 7, 7, 7),
        ([3.0, 1.0, 2.0], 1, 2, 3),
        ([4.0, 1.0, 3.0, 2.0], 1, 2.5, 4),
        ([float(n) for n in range(10, 0, -1)], 1, 5.5, 9),
        ([float(n) for n in range(1, 21)], 1, 10.5, 18),
    ],
)
def test_median_and_spread(values: list[float], low: float, median: float, high: float) -> None:
    sample = Sample.of(values)
    assert (sample.low, sample.median, sample.high) == (low, median, high)


def test_nothing_is_no_sample() -> None:
    with pytest.raises(ValueError, match="without values"):
        Sample.of([])


def test_the_sample_with_the_smaller_median_counts() -> None:
    calm, disturbed = Sample.of([2, 2, 9]), Sample.of([1, 3, 3])
    assert best([disturbed, calm]) == calm


FOUND = {"yard stick": [Sample.of([2.0]), Sample.of([4.0])], "ours": [Sample.of([30.0]), Sample.of([3.0, 3.0, 5.0])]}


def test_ratios_are_of_the_best_samples() -> None:
    assert ratios(FOUND, "yard stick") == {"yard stick": 1.0, "ours": 1.5}


def test_a_table_of_timings() -> None:
    assert timings(FOUND, "yard stick") == (
        "ms           min  median   p90  all medians  x yard stick\n"
        "yard stick  2.00    2.00  2.00    2.00 4.00          1.00\n"
        "ours        3.00    3.00  5.00   30.00 3.00          1.50"
    )


def test_a_table_without_rows_is_its_head() -> None:
    assert table(["MB", "1"], []) == "MB  1"


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (9.0, "reached      speed: 9.00 x, at most 9"),
        (9.01, "NOT REACHED  speed: 9.01 x, at most 9"),
    ],
)
def test_a_target_says_whether_it_is_reached(value: float, line: str) -> None:
    assert Target("speed", value, 9, "x").line == line


def test_turns_are_paired_by_pid_and_ordered_by_start() -> None:
    text = "S 1 1000000\nS 2 5000000\nE 2 6000000\nE 1 3000000\nS 3 9000000\n"
    assert turns(text) == [Turn(1000000, 3000000), Turn(5000000, 6000000)]
    assert gaps(turns(text)) == [2.0]


def test_two_at_once_are_no_figure() -> None:
    with pytest.raises(RuntimeError, match="two held the lock"):
        gaps([Turn(1, 5), Turn(4, 9)])


def test_waiters_of_a_file_in_proc_locks() -> None:
    locks = (
        "1: FLOCK  ADVISORY  WRITE 24922 fe:00:2180 0 EOF\n"
        "1: -> FLOCK  ADVISORY  WRITE 24923 fe:00:2180 0 EOF\n"
        "1: -> FLOCK  ADVISORY  WRITE 24924 fe:00:2180 0 EOF\n"
        "2: FLOCK  ADVISORY  WRITE 24930 fe:00:180 0 EOF\n"
        "2: -> FLOCK  ADVISORY  WRITE 24931 fe:00:180 0 EOF\n"
        "3: OFDLCK ADVISORY  WRITE -1 fe:00:77 1099511627778 1099511627778\n"
    )
    assert [peers.waiting_in(locks, inode) for inode in (2180, 180, 80, 77)] == [2, 1, 0, 0]


def test_pss_of_a_rollup() -> None:
    rollup = "5632dd51e000-7ffcf1211000 ---p 00000000 00:00 0 [rollup]\nRss: 1684 kB\nPss: 245 kB\nPss_Dirty: 112 kB\n"
    assert memory.pss(rollup) == 245 * 1024
    with pytest.raises(ValueError, match="without Pss"):
        memory.pss("Rss: 1 kB\n")


def test_the_measured_may_use_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("DISTLOCK_BACKEND", "elsewhere:")
    monkeypatch.setenv("ETCDCTL_ENDPOINTS", "elsewhere:2379")
    found = peers.environment(tmp_path)
    assert {"PYTHONDONTWRITEBYTECODE", "DISTLOCK_BACKEND", "ETCDCTL_ENDPOINTS"}.isdisjoint(found)
    assert found["PATH"] == os.environ["PATH"]


def test_without_a_compiler_the_child_is_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert make_child(tmp_path).what == "sh and date"


@pytest.mark.parametrize("shell", [False, True], ids=["c", "sh"])
def test_a_child_writes_down_its_turn(shell: bool, tmp_path: Path) -> None:
    child = make_child(tmp_path, shell)
    stamps, gate = tmp_path / "stamps", tmp_path / "gate"
    os.mkfifo(gate)
    stamps.touch()
    subprocess.run(child.words(stamps, None), check=True, timeout=30)
    waiting = subprocess.Popen(child.words(stamps, gate))
    try:
        processes.wait_until(lambda: stamps.read_text().count("S") == 2, "the second has started")
        assert len(turns(stamps.read_text())) == 1
        gate.write_bytes(b"")
        assert waiting.wait(30) == 0
    finally:
        processes.end(waiting)
    first, second = turns(stamps.read_text())
    assert 0 < first.start < first.end < second.start < second.end


def test_a_command_that_fails_is_not_measured() -> None:
    assert start_up.run(["/bin/true"], {}) > 0
    with pytest.raises(RuntimeError, match="/bin/false: wait status 256"):
        start_up.run(["/bin/false"], {})


def test_a_condition_is_not_waited_for_without_end() -> None:
    with pytest.raises(TimeoutError, match="rain"):
        processes.wait_until(lambda: False, "rain", 0.01)


BENCHMARK = [sys.executable, str(ROOT / "benchmarks/run.py")]


def test_all_of_it_runs(tmp_path: Path) -> None:
    """With counts that say nothing about speed, and from another folder."""
    small = ["--starts=1", "--waiters=2", "--samples=1"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*BENCHMARK, *small], check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "flock",
        "etcdctl lock",
        "redis-py Lock",
        "distlock, local",
        "distlock, redis",
        "distlock, redis+sentinel",
        "distlock, redis+cluster",
        "distlock, redlock",
        "distlock, etcd",
        "kazoo Lock",
        "distlock, zookeeper",
        "distlock, postgresql",
        "python -c pass",
        "x etcdctl lock",
        "MB",
        "one of 2",
    ):
        assert words in done.stdout
    _, _, verdicts = done.stdout.partition("\nTargets\n")
    assert len(verdicts.splitlines()) == 3 * 8  # of each engine
    assert all(line.split()[0] in ("reached", "NOT") for line in verdicts.splitlines())
    engines = ("distlock, local:", "distlock, redis:", "distlock, postgresql:")
    assert [verdicts.count(engine) for engine in engines] == [3, 3, 3]
    assert list(tmp_path.iterdir()) == []


def running_in(folder: Path) -> list[bytes]:
    """Command lines that name it."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(file.read_bytes())
    return [words for words in found if os.fsencode(folder) in words]


def test_nothing_is_left_when_it_is_ended(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    running = subprocess.Popen([*BENCHMARK, "--starts=1"], env=environment, stdout=subprocess.DEVNULL)
    try:
        processes.wait_until(lambda: bool(list(tmp_path.glob("*/*.gate"))), "contenders are started")
        assert running_in(tmp_path)
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 128 + signal.SIGTERM
    finally:
        processes.end(running)
    assert running_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
