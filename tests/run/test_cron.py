"""The main job as cron runs it: an empty environment, no terminal, and the states a disk can be in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from processes import DISTLOCK, Lab

AS_ROOT_WITH_MOUNTS = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
"""The default of uid 0 is /var/lib/distlock: in a mount namespace it is a folder of the test's own."""


def sh(
    folder: Path, script: str, *before: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, "/bin/sh", "-euc", script],
        cwd=folder,
        env=environment or {},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def job(tmp_path: Path) -> Path:
    script = tmp_path / "backup.sh"
    script.write_text("#!/bin/sh\nenv | sed 's/=.*//' | sort | tr '\\n' ' ' > seen\necho backed up\n")
    script.chmod(0o755)
    return tmp_path


OURS = "DISTLOCK_FENCING_TOKEN DISTLOCK_LEASE DISTLOCK_NAME DISTLOCK_OWNER DISTLOCK_RUN DISTLOCK_TTL"


@pytest.mark.parametrize("locale", ["", "LC_ALL=C", "LANG=C"])
def test_main_job_with_an_empty_environment(job: Path, locale: str) -> None:
    script = f"mount -t tmpfs tmpfs /var/lib; env -i {locale} {DISTLOCK} run --ttl 30 nightly-job -- ./backup.sh; "
    done = sh(
        job, script + "ls -A /var/lib; stat -c %a /var/lib/distlock /var/lib/distlock/locks", *AS_ROOT_WITH_MOUNTS
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "backed up\ndistlock\n700\n700\n"
    # What /bin/sh adds for itself is not ours; nothing else is there, LC_CTYPE above all.
    expected = {*OURS.split(), "PWD", *([locale.partition("=")[0]] if locale else [])}
    assert set((job / "seen").read_text().split()) - {"_", "SHLVL", "OLDPWD"} == expected


def test_names_in_every_locale(lab: Lab) -> None:
    for locale in ("C", "C.UTF-8", "POSIX"):
        done = lab.run("резервная копия/π", "--", "printenv", "DISTLOCK_NAME", environment={"LC_ALL": locale})
        assert done.stdout.decode() == "резервная копия/π\n"
    (only,) = (lab.folder / "locks").glob("*.lock/lock.db")
    assert only.stat().st_mode & 0o777 == 0o600


def test_user_state_directory_without_home(job: Path) -> None:
    """From the password database, as cron itself does it."""
    home = Path(os.path.expanduser(f"~{'root' if os.geteuid() == 0 else ''}"))
    probe = "import os; os.geteuid = lambda: 4711; from distlock.state import state_directory as s; print(s())"
    python = Path(DISTLOCK).parent / "python"
    done = sh(job, f"{python} -c '{probe}'; HOME= {python} -c '{probe}'")
    assert done.stdout == f"{home}/.local/state/distlock\n" * 2


def as_uid(uid: int) -> list[str]:
    """Another user, who may read everything: the interpreter may lie in a folder of root's."""
    caps = "+dac_read_search"
    identity = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return ["setpriv", *identity, f"--inh-caps={caps}", f"--ambient-caps={caps}"]


def test_user_without_a_home(job: Path) -> None:
    done = sh(job, f"exec {DISTLOCK} run nightly-job -- ./backup.sh", *as_uid(47113))
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == (
        "distlock: user 47113 has no home directory; set HOME, XDG_STATE_HOME or DISTLOCK_STATE_DIR\n"
    )


def test_state_directory_of_an_ordinary_user(job: Path) -> None:
    job.chmod(0o755)
    home = job / "home"
    home.mkdir()
    os.chown(home, 47113, 47113)
    script = f"cd {home}; HOME={home} {DISTLOCK} run -v nightly-job -- true; find {home} -type f -o -type d | sort"
    done = sh(job, script, *as_uid(47113))
    assert done.stderr == ""
    state = home / ".local" / "state" / "distlock"
    assert {str(state), str(state / "locks"), str(state / "leases")} <= set(done.stdout.split())
    assert state.stat().st_mode & 0o777 == 0o700


def refused(done: subprocess.CompletedProcess[str], job: Path, code: int, *words: str) -> None:
    assert done.returncode == code
    assert done.stderr.startswith("distlock: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr
    assert not (job / "seen").exists()


def test_directory_of_another_uid(job: Path) -> None:
    locks = job / "locks"
    locks.mkdir(mode=0o700)
    os.chown(locks, 47114, 47114)
    done = sh(job, f"exec {DISTLOCK} run -b local://{locks} nightly-job -- ./backup.sh", *as_uid(47113))
    refused(done, job, 77, str(locks), "47114")
    done = sh(job, f"exec {DISTLOCK} run -b local://{locks} nightly-job -- ./backup.sh")
    refused(done, job, 77, str(locks), "47114")


@pytest.mark.parametrize("known", [False, True], ids=["first use", "existing lock"])
def test_full_disk(job: Path, known: bool) -> None:
    first = f"{DISTLOCK} run nightly-job -- true; " if known else ""
    script = (
        "mount -t tmpfs -o size=256k tmpfs /mnt; export DISTLOCK_STATE_DIR=/mnt/state; "
        f"{first}cat /dev/zero > /mnt/full 2>/dev/null || :; exec {DISTLOCK} run nightly-job -- ./backup.sh"
    )
    refused(sh(job, script, *AS_ROOT_WITH_MOUNTS), job, 69, "/mnt/state")


@pytest.mark.parametrize("known", [False, True], ids=["first use", "existing lock"])
def test_read_only_disk(job: Path, known: bool) -> None:
    first = f"{DISTLOCK} run nightly-job -- true; " if known else ""
    script = (
        "mount -t tmpfs tmpfs /mnt; export DISTLOCK_STATE_DIR=/mnt/state; "
        f"{first}mount -o remount,ro /mnt; exec {DISTLOCK} run nightly-job -- ./backup.sh"
    )
    refused(sh(job, script, *AS_ROOT_WITH_MOUNTS), job, 69, "/mnt/state", "ead-only")


def test_disk_that_fills_up_during_the_run(job: Path) -> None:
    """The lock has all the room that it needs from its first grant on: nothing happens to the job."""
    script = (
        "mount -t tmpfs -o size=256k tmpfs /mnt; export DISTLOCK_STATE_DIR=/mnt/state; code=0; "
        f"{DISTLOCK} run --ttl 3 job -- sh -c 'cat /dev/zero > /mnt/full 2>/dev/null; exec sleep 5' || code=$?; "
        f"echo $code; {DISTLOCK} run -w 5 job -- echo next"
    )
    done = sh(job, script, *AS_ROOT_WITH_MOUNTS)
    assert (done.stdout, done.stderr) == ("0\nnext\n", "")


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"garbage" * 4000])
def test_damaged_database_is_not_a_free_lock(lab: Lab, content: bytes) -> None:
    assert lab.run("job", "--", "true").returncode == 0
    (path,) = (lab.folder / "locks").glob("*.lock/lock.db")
    path.write_bytes(content)
    mark = lab.folder / "mark"
    done = lab.run("job", "--", "touch", str(mark), seconds=8)
    assert done.returncode == 69
    assert str(path.parent) in done.stderr.decode()
    assert done.stderr.decode().count("\n") == 1
    assert not mark.exists()


def test_network_file_system_is_refused(job: Path) -> None:
    """9p is the one that every kernel here can name; what counts is the type in the mount table."""
    done = sh(job, f"exec {DISTLOCK} run -b local://host/share job -- ./backup.sh")
    refused(done, job, 78, "local://host/share")
