"""Commands that answer where nobody can be answered: stdout is closed, or its disk is full."""

from __future__ import annotations

import subprocess

import pytest

from processes import DISTLOCK, Lab

COMMANDS = (
    ["status"],
    ["status", "--json"],
    ["inspect", "job"],
    ["history"],
    ["history", "--json"],
    ["metrics"],
    ["backends"],
    ["config"],
    ["doctor"],
    ["--version"],
    ["--help"],
)
named = pytest.mark.parametrize("command", COMMANDS, ids=" ".join)


def told(lab: Lab, command: list[str], to: str) -> subprocess.CompletedProcess[str]:
    lab.run("job", "true")
    words = ["sh", "-c", f'exec "$@" {to}', "sh", DISTLOCK, *command]
    return subprocess.run(words, env=lab.environment, capture_output=True, text=True, timeout=30, check=False)


@named
def test_a_closed_one(lab: Lab, command: list[str]) -> None:
    """The code is the answer."""
    done = told(lab, command, ">&-")
    assert (done.returncode, done.stderr) in ((0, ""), (1, ""))


@named
def test_a_full_one(lab: Lab, command: list[str]) -> None:
    done = told(lab, command, ">/dev/full")
    assert done.returncode == 70
    assert done.stderr == "distlock: cannot write the answer: No space left on device\n"
