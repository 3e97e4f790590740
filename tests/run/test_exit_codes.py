"""How a run ends, to whoever waits for it: the table of exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from processes import DISTLOCK, Lab, wait_until


@pytest.mark.parametrize("code", [0, 1, 2, 3, 64, 75, 76, 124, 127, 128, 200, 254, 255])
def test_code_of_child(lab: Lab, code: int) -> None:
    done = lab.run("job", "--", "sh", "-c", f"exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "INT", "PIPE", "HUP", "ABRT", "USR1", "QUIT", "ALRM"])
def test_death_by_signal_is_passed_on(lab: Lab, name: str) -> None:
    done = lab.run("job", "--", "sh", "-c", f"kill -{name} $$")
    assert (done.returncode, done.stderr) == (-signal.Signals[f"SIG{name}"], b"")


def test_death_by_signal_writes_no_second_core(lab: Lab) -> None:
    lab.run("job", "--", "sh", "-c", "ulimit -c 0; kill -SEGV $$")
    assert not list(lab.folder.glob("core*"))


def test_shell_sees_128_plus_n(lab: Lab) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{DISTLOCK} run job -- sh -c 'kill -TERM $$'; echo $?"],
        env=lab.environment,
        capture_output=True,
        check=False,
        start_new_session=True,
    )
    assert done.stdout == b"143\n"


def _nothing_is_held(lab: Lab, name: str = "job") -> bool:
    return lab.run("-n", name, "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("make", "code", "reason"),
    [
        (None, 127, "command not found"),
        ("file", 126, "is not executable"),
        ("folder", 126, "is a directory"),
        ("dangling", 127, "dangling"),
    ],
)
def test_command_that_cannot_be_started(lab: Lab, make: str | None, code: int, reason: str) -> None:
    path = lab.folder / "tool"
    if make == "file":
        path.write_text("#!/bin/sh\n")
        path.chmod(0o644)
    elif make == "folder":
        path.mkdir()
    elif make == "dangling":
        path.symlink_to("nowhere")
    done = lab.run("job", "--", str(path))
    assert done.returncode == code
    assert done.stderr.decode().count("\n") == 1
    assert str(path) in done.stderr.decode()
    assert reason in done.stderr.decode()
    assert _nothing_is_held(lab)


def test_missing_command_is_told_before_the_lock_is_waited_for(lab: Lab) -> None:
    holder = lab.start("job", "--", "sh", "-c", "echo started; exec sleep 60")
    assert holder.stdout
    assert holder.stdout.readline() == b"started\n"
    assert lab.run("job", "--", "no-such-command", seconds=10).returncode == 127


def test_exec_that_fails_after_the_grant(lab: Lab) -> None:
    """The interpreter of a script is only looked for by the exec itself."""
    script = lab.folder / "job.sh"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = lab.run("job", "--", str(script))
    assert done.returncode == 127
    assert done.stderr.decode() == f"distlock: '{script}': No such file or directory\n"
    assert _nothing_is_held(lab)


def test_script_without_a_shebang_runs_as_under_flock(lab: Lab) -> None:
    script = lab.folder / "job.sh"
    script.write_text('echo "$0 $1"\n')
    script.chmod(0o755)
    done = lab.run("job", "--", str(script), "a b")
    assert done.stdout.decode() == f"{script} a b\n"


def test_path_of_the_environment_decides(lab: Lab) -> None:
    for folder, text in (("one", "first"), ("two", "second")):
        tool = lab.folder / folder / "tool"
        tool.parent.mkdir()
        tool.write_text(f"#!/bin/sh\necho {text}\n")
        tool.chmod(0o755 if folder == "two" else 0o644)
    path = f"{lab.folder / 'one'}:{lab.folder / 'two'}:{os.environ['PATH']}"
    done = lab.run("job", "--", "tool", environment={"PATH": path})
    assert done.stdout == b"second\n"


@pytest.mark.parametrize(("options", "code"), [(["-n"], 75), (["-w", "0"], 75), (["-n", "-E", "9"], 9)])
def test_conflict(lab: Lab, options: list[str], code: int) -> None:
    holder = lab.start("job", "--", "sh", "-c", "echo started; exec sleep 60")
    assert holder.stdout
    assert holder.stdout.readline() == b"started\n"
    mark = lab.folder / "mark"
    assert lab.run(*options, "job", "--", "touch", str(mark)).returncode == code
    assert not mark.exists()


def test_nested_run_of_the_same_lock_is_refused_at_once(lab: Lab) -> None:
    done = lab.run("job", "--", DISTLOCK, "run", "--wait", "60", "job", "--", "true", seconds=20)
    assert done.returncode == 75
    assert b"'job' is held by the run that this one is inside of" in done.stderr
    assert lab.run("job", "--", DISTLOCK, "run", "other", "--", DISTLOCK, "run", "job", "true").returncode == 75
    assert lab.run("job", "--", DISTLOCK, "run", "other", "--", "sh", "-c", "exit 4").returncode == 4


def test_as_pid_1_it_reaps_forwards_and_reports_128_plus_n(lab: Lab) -> None:
    """In a pid namespace of its own, as in a container."""
    started = lab.folder / "started"
    # Twenty orphans; then what is left in the namespace is counted, zombies too.
    orphans = "for i in $(seq 20); do (sleep 0.05 &) ; done; "
    count = "sleep 0.5; grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l; "
    ready = f"echo > {started}; exec sleep 60"
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    process = lab.spawn([*namespace, DISTLOCK, "run", "job", "--", "sh", "-c", orphans + count + ready])
    wait_until(started.exists, 20)
    inner = wait_until(lambda: _child_of(process.pid))
    os.kill(inner, signal.SIGTERM)
    out, err = process.communicate(timeout=10)
    assert (out, err) == (b"0\n", b"")
    assert process.returncode == 128 + signal.SIGTERM


def _child_of(pid: int) -> int:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(text[0]) if text else 0
