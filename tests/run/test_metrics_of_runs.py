"""``distlock metrics`` and the textfile, as runs leave them; refused tokens; what keeping them costs a run."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from processes import DISTLOCK, Lab, renewer_of, wait_until
from test_metrics import samples


def metrics(lab: Lab) -> dict[tuple[str, ...], float]:
    done = subprocess.run([DISTLOCK, "metrics"], env=lab.environment, capture_output=True, check=True)
    assert done.stderr == b""
    return samples(done.stdout)


@pytest.fixture
def configured(lab: Lab) -> Path:
    """The textfile. Relative to the configuration's folder."""
    folder = lab.folder / ".config/distlock"
    (folder / "collector").mkdir(parents=True)
    (folder / "config.toml").write_text("[metrics]\ntextfile = 'collector'\n")
    return folder / f"collector/distlock-{os.geteuid()}.prom"


def test_what_runs_leave(lab: Lab) -> None:
    assert metrics(lab) == {}
    lab.run("job", "true")
    lab.run("job", "false")
    found = metrics(lab)
    assert found["distlock_runs_total", lab.backend, "job", "succeeded", "root"] == 1
    assert found["distlock_runs_total", lab.backend, "job", "failed", "root"] == 1


def test_the_textfile_is_there_when_the_command_has_returned(lab: Lab, configured: Path) -> None:
    for count in (1, 2):
        assert lab.run("job", "true").returncode == 0
        wait_until(lambda count=count: runs_in(lab, configured) == count, 5)  # type: ignore[misc]
    assert configured.stat().st_mode & 0o777 == 0o644
    assert lab.run("-n", "-b", "redis://127.0.0.1:1", "job", "true").returncode == 69
    key = ("distlock_acquisitions_total", "redis://127.0.0.1:1", "job", "unavailable", "root")
    wait_until(lambda: samples(configured.read_bytes()).get(key) == 1, 5)


def runs_in(lab: Lab, path: Path, name: str = "job") -> float:
    if not path.exists():
        return 0
    return samples(path.read_bytes()).get(("distlock_runs_total", lab.backend, name, "succeeded", "root"), 0)


def test_many_runs_that_end_at_once(lab: Lab, configured: Path) -> None:
    """All are in the file that is there in the end, and it is a whole one at any time."""
    gate = lab.folder / "gate"
    script = f"until [ -e {gate} ]; do sleep 0.02; done"
    runs = [lab.start(f"job-{number}", "sh", "-c", script) for number in range(12)]
    wait_until(
        lambda: (lab.folder / "state/leases").is_dir() and len(os.listdir(lab.folder / "state/leases")) == 12, 60
    )
    gate.touch()
    while any(run.poll() is None for run in runs):
        if configured.exists():
            assert configured.read_bytes().endswith(b"\n")
        time.sleep(0.002)
    assert [run.returncode for run in runs] == [0] * 12
    wait_until(lambda: sum(runs_in(lab, configured, f"job-{number}") for number in range(12)) == 12, 20)
    assert not list(configured.parent.glob("*.new"))


def test_a_textfile_that_cannot_be_written_is_a_word_with_v(lab: Lab, configured: Path) -> None:
    (configured.parent.parent / "config.toml").write_text("[metrics]\ntextfile = 'no/such/folder/x.prom'\n")
    assert lab.run("job", "true").stderr == b""
    done = lab.run("-v", "job", "sleep", "1")  # long enough for everything to be loaded while it runs
    assert done.returncode == 0
    assert b"not recorded: " in done.stderr
    wait_until(lambda: metrics(lab).get(("distlock_runs_total", lab.backend, "job", "succeeded", "root")) == 2)


def test_refused_tokens_are_counted(lab: Lab) -> None:
    for token, code in ((7, 0), (6, 65), (5, 65), (7, 0)):
        done = subprocess.run(
            [DISTLOCK, "fence", "/srv/data", "--token", str(token)],
            env=lab.environment,
            capture_output=True,
            check=False,
        )
        assert done.returncode == code
    assert metrics(lab)["distlock_fencing_refusals_total", "/srv/data", "root"] == 2
    (lab.folder / "state/journal.db").unlink()
    (lab.folder / "state/journal.db").mkdir()
    done = subprocess.run(
        [DISTLOCK, "fence", "/srv/data", "--token", "1"], env=lab.environment, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr.count(b"\n")) == (65, 1)


def test_the_supervisor_loads_nothing_of_it(lab: Lab, configured: Path) -> None:
    """By what is mapped, while the command runs and the renewer has got everything ready."""
    holder = lab.start("job", "sleep", "60")
    renewer = renewer_of(holder.pid)
    wait_until(lambda: "pyexpat" in Path(f"/proc/{renewer}/maps").read_text() or loaded_long_ago(holder.pid), 10)
    assert "sqlite3" not in Path(f"/proc/{holder.pid}/maps").read_text()
    assert not configured.exists()


def loaded_long_ago(pid: int) -> bool:
    ticks = float(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK") > 1.5


def test_success_is_remembered_by_the_backend(lab: Lab) -> None:
    """As the lock's, not as this host's: another state directory knows it too."""

    def within(limit: str) -> int:
        return subprocess.run(
            [DISTLOCK, "inspect", "-q", "job", "--succeeded-within", limit],
            env=lab.environment | {"DISTLOCK_STATE_DIR": str(lab.folder / "elsewhere")},
            capture_output=True,
            check=False,
        ).returncode

    assert within("1d") == 1
    lab.run("job", "false")
    lab.run("job", "no-such-command")
    lab.run("job", "sh", "-c", "kill -9 $$")
    assert within("1d") == 1
    lab.run("job", "sleep", "1.2")
    assert (within("1d"), within("1s")) == (0, 1)  # by its start
    lab.run("job", "false")
    assert within("1d") == 0
    run = lab.start("--ttl", "3", "other", "sh", "-c", "trap 'exit 0' TERM; echo started; sleep 60 & wait")
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    for path in (lab.folder / "locks").iterdir():
        path.rename(lab.folder / path.name)
    assert run.wait(20) == 76  # lost, though the command says 0
    assert within("1d") == 1
