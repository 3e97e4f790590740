"""docs/flock.md: both columns do the same, shown with the real flock."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from processes import DISTLOCK, Lab

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "flock.md").read_text()
ROWS = [
    (old.replace("\\|", "|"), new.replace("\\|", "|"))
    for old, new in re.findall(r"^\| `(flock .+?)` \| `(distlock run .+?)` \|$", TEXT, re.MULTILINE)
]


def shell(lab: Lab, line: str, command: str) -> tuple[int, str, str]:
    """Exit code and both outputs of a line, with ``command`` for CMD."""
    script = line.replace("distlock run", f"{DISTLOCK} run").replace("/run/lock/job", "job.lock")
    script = script.replace("CMD", command)
    done = subprocess.run(
        ["sh", "-c", script],
        env=lab.environment,
        cwd=lab.folder,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
        timeout=30,
    )
    return done.returncode, done.stdout, done.stderr


def test_there_are_rows() -> None:
    assert len(ROWS) == len(re.findall(r"`flock [^`]*CMD[^`]*` \| ", TEXT))
    assert len(ROWS) >= 7


@pytest.mark.parametrize(("old", "new"), ROWS)
def test_both_do_the_same_with_a_free_lock(lab: Lab, old: str, new: str) -> None:
    for command in ("echo ran", "false", "sh -c 'exit 7'"):
        if "-c 'CMD" in old and "'" in command:
            continue  # quotes in quotes
        assert shell(lab, new, command) == shell(lab, old, command)


@pytest.mark.parametrize(("old", "new"), [row for row in ROWS if " -n" in row[0] or "-w" in row[0] or "time" in row[0]])
def test_both_do_the_same_with_a_lock_that_is_held(lab: Lab, old: str, new: str) -> None:
    ours = lab.start("job", "--", "sh", "-c", "echo held; exec sleep 60")
    theirs = lab.spawn(["flock", "job.lock", "sh", "-c", "echo held; exec sleep 60"])
    for holder in (ours, theirs):
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
    code, out, _ = shell(lab, new, "echo ran")
    assert (code, out) == shell(lab, old, "echo ran")[:2]
    assert out == ""


def test_a_script_that_takes_its_own_lock(lab: Lab) -> None:
    (row,) = re.findall(r"^\| `(\[ .+)` \| `(\[ .+)` \|$", TEXT, re.MULTILINE)
    for line in row:
        first = line.replace("\\|", "|").replace("distlock run", f"{DISTLOCK} run")
        script = lab.folder / "script"
        script.write_text(f'#!/bin/sh\n{first}\necho "ran with $1"\n')
        script.chmod(0o755)
        done = subprocess.run([str(script), "a b"], env=lab.environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran with a b\n", "")


@pytest.mark.parametrize("option", ["-s", "--shared", "-u", "--unlock", "-F", "--no-fork"])
def test_what_is_refused_is_refused_with_a_reason(lab: Lab, option: str) -> None:
    assert f"`{option}`" in TEXT
    done = lab.run(option, "job", "true")
    assert done.returncode == 2
    assert option.encode() in done.stderr


def test_the_old_lock_inside_of_the_new_one(lab: Lab) -> None:
    (line,) = re.findall(r"`(distlock run job flock\s/run/lock/job CMD)`", TEXT)
    assert shell(lab, line.replace("\n", " "), "echo ran") == (0, "ran\n", "")
