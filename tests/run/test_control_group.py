"""Where control groups (version 2) are writable, the child has one of its own, and nothing in it survives."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from contending import Contender
from distlock.supervise import tree
from margins import Margin
from processes import DISTLOCK, Lab, is_alive, renewer_of, wait_until

pytestmark = pytest.mark.faults


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Path]:
    """A mount of version 2, wherever this machine has put its own."""
    point = tmp_path / "groups"
    point.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", str(point)], check=True)
    yield point
    subprocess.run(["umount", str(point)], check=True)


def own(lab: Lab, groups: Path) -> list[Path]:
    """Those of this test's runs: their owner ids name the lease files, too."""
    owners = [path.stem for path in (lab.folder / "state" / "leases").glob("*.json")]
    return [path for owner in owners for path in groups.rglob(f"distlock-{owner}")]


def _is_gone(group: Path) -> bool:
    return not group.exists()


def test_daemon_born_a_moment_before_the_supervisor_is_killed(lab: Lab, groups: Path, margin: Margin) -> None:
    """No snapshot knows it, its environment is empty, its session is its own: only the group has it."""
    command, stamps = lab.stamper("deaf daemon bare")
    for _ in range(5):
        stamps.path.unlink(missing_ok=True)
        run = lab.start("job", "--", *command)
        daemon = wait_until(stamps.lines)[0][0]
        (group,) = own(lab, groups)
        run.kill()
        with Contender(lab.backend, "job", lab.folder) as other:
            granted = other.wait(5)
        margin(stamps.last(), granted)
        assert not is_alive(daemon)
        wait_until(partial(_is_gone, group))


def test_nothing_stays_behind_and_a_left_daemon_is_put_back(lab: Lab, groups: Path) -> None:
    script = "setsid -f sleep 60 >/dev/null 2>&1; cat /proc/self/cgroup | sed -n 's/^0:://p'; pgrep -n -x sleep"
    done = lab.run("job", "--", "sh", "-c", script)
    assert done.returncode == 0
    inside, daemon = done.stdout.decode().split()
    assert "/distlock-" in inside
    here = Path("/proc/self/cgroup").read_text().splitlines()[-1].removeprefix("0::")
    assert Path(f"/proc/{daemon}/cgroup").read_text().splitlines()[-1].removeprefix("0::") == here
    os.kill(int(daemon), signal.SIGKILL)
    assert not list(groups.rglob(Path(inside).name))


def test_lost_lease_ends_all_in_the_group(lab: Lab, groups: Path) -> None:
    command, stamps = lab.stamper("deaf daemon bare")
    run = lab.start("--ttl", "3", "job", "--", *command)
    daemon = stamps.writer()
    (group,) = own(lab, groups)
    assert str(daemon) in (group / "cgroup.procs").read_text().split()
    os.kill(renewer_of(run.pid), signal.SIGKILL)
    assert run.wait(10) == 76
    assert not is_alive(daemon)
    assert not group.exists()


def test_groups_of_runs_that_were_killed_whole_are_removed_later(lab: Lab, groups: Path) -> None:
    run = lab.start("job", "--", "sleep", "60")
    (group,) = wait_until(lambda: own(lab, groups))
    os.kill(renewer_of(run.pid), signal.SIGKILL)
    run.kill()
    run.wait(5)
    wait_until(lambda: not (group / "cgroup.procs").read_text())
    assert lab.run("-w", "5", "other", "--", "true").returncode == 0
    assert group.exists(), "it could be one that was just made"
    os.utime(group, (0, 0))
    assert lab.run("-w", "5", "other", "--", "true").returncode == 0
    assert not group.exists()


def test_waiter_that_is_killed_leaves_no_group(lab: Lab, groups: Path) -> None:
    holder = lab.start("job", "--", "sh", "-c", "echo started; exec sleep 60")
    assert holder.stdout
    assert holder.stdout.readline() == b"started\n"
    waiter = lab.start("job", "--", "true")
    wait_until(lambda: lab.waiters() == 1)
    (parked,) = [p for p in tree.children(waiter.pid) if Path(f"/proc/{p}/comm").read_text() == "distlock-parked\n"]

    def inside() -> str:
        return Path(f"/proc/{parked}/cgroup").read_text().splitlines()[-1].removeprefix("0::/")

    group = groups / wait_until(lambda: inside() if "distlock-" in inside() else "")
    waiter.kill()
    wait_until(lambda: not group.exists(), 5)


def test_group_goes_with_the_groups_of_nested_runs_in_it(lab: Lab, groups: Path) -> None:
    inner = f"{DISTLOCK} run inner -- sleep 60 & sleep 1; pkill -9 -P $!; kill -9 $!; sleep 0.2"
    script = f"sed -n 's/^0:://p' /proc/self/cgroup; {inner}"
    done = lab.run("outer", "--", "sh", "-c", script)
    group = done.stdout.decode().split()[0]
    assert "/distlock-" in group
    assert not list(groups.rglob(Path(group).name))


def test_read_only_groups_are_done_without(lab: Lab) -> None:
    script = "mount -t cgroup2 none /mnt; for m in $(awk '$3 == \"cgroup2\" {print $2}' /proc/mounts); do "
    script += f"mount -o remount,bind,ro $m; done; exec {DISTLOCK} run job -- cat /proc/self/cgroup"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-euc", script], env=lab.environment, capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "distlock-" not in done.stdout
