"""``distlock release``: the holder that was meant is stopped, and nobody else gets the lock before it is dead."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import Any

import pytest

from contending import Contender
from distlock.clock import boottime
from distlock.deadline import default_grace
from margins import Margin
from processes import DISTLOCK, Lab, Stamps, is_alive, renewer_of
from terminals import Terminal

pytestmark = pytest.mark.faults


def ask(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DISTLOCK, *arguments],
        env=lab.environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def inspected(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(lab, "inspect", lab.job, "--json").stdout)
    return found


def holder(lab: Lab) -> list[str]:
    """The options that name the holder."""
    found = inspected(lab)
    return ["--owner", found["holder"]["owner"]] if found["token"] is None else ["--token", str(found["token"])]


def hold(lab: Lab, *options: str, mode: str = "plain") -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(mode)
    run = lab.start(*options, lab.job, "--", *command)
    stamps.writer()
    return run, stamps


def test_the_command_is_stopped_and_the_lock_is_free_then(each_lab: Lab, margin: Margin) -> None:
    run, stamps = hold(each_lab, "--ttl", "9", mode="deaf daemon")
    with Contender(each_lab.backend, each_lab.job, each_lab.folder) as other:
        named = holder(each_lab)
        asked = boottime()
        done = ask(each_lab, "release", each_lab.job, *named, "--yes")
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(
            r"freed after .*: the command of its holder was stopped, and it was given back\n", done.stdout
        )
        granted = other.wait(2)
    margin(stamps.last(), granted)
    assert granted - asked < 9 / 3 + default_grace(9) + 3.0  # for two commands to start on a busy machine
    _, stderr = run.communicate(timeout=5)
    assert run.returncode == 76
    (line,) = stderr.decode().splitlines()
    assert re.fullmatch(
        rf"distlock: '{each_lab.job}': lease lost: an operator released it: \w+@\S+; COMMAND was stopped", line
    )
    assert not is_alive(stamps.writer())


def test_a_holder_that_does_not_hear_it_keeps_the_lock_until_its_ttl_is_over(each_lab: Lab, margin: Margin) -> None:
    run, stamps = hold(each_lab, "--ttl", "4", mode="deaf")
    processes = [run.pid, renewer_of(run.pid), stamps.writer()]
    named = holder(each_lab)
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)
    with Contender(each_lab.backend, each_lab.job, each_lab.folder) as other:
        done = ask(each_lab, "release", each_lab.job, *named, "--yes")
        assert re.fullmatch(r"freed after .*: its TTL ran out\n", done.stdout), done
        margin(stamps.last(), other.wait(3))
    for pid in reversed(processes):
        os.kill(pid, signal.SIGCONT)
    assert run.wait(5) == 76


def test_now_is_now_and_says_that_two_may_run(each_lab: Lab) -> None:
    run, stamps = hold(each_lab, "--ttl", "6")
    done = ask(each_lab, "release", each_lab.job, *holder(each_lab), "--now", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "may still run" in done.stdout
    assert each_lab.run("-n", each_lab.job, "--", "true").returncode == 0
    assert run.wait(6) == 76
    assert not is_alive(stamps.writer())


@pytest.mark.parametrize("now", [[], ["--now"]], ids=["", "now"])
def test_a_holder_that_is_another_by_now_is_not_touched(each_lab: Lab, now: list[str]) -> None:
    hold(each_lab)
    found = inspected(each_lab)
    wrong = ["--owner", "nobody"] if found["token"] is None else ["--token", str(found["token"] - 1)]
    done = ask(each_lab, "release", each_lab.job, *wrong, *now, "--yes")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (65, "", 1)
    assert "nothing was done" in done.stderr
    assert str(found["holder"]["pid"]) in done.stderr
    assert inspected(each_lab)["holder"] == found["holder"]
    assert each_lab.run("-n", each_lab.job, "--", "true").returncode == 75


def test_a_free_lock_has_no_holder(each_lab: Lab) -> None:
    done = ask(each_lab, "release", each_lab.job, "--token", "1", "--yes")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (65, "", 1)
    assert "nobody holds it" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--token"),
        (["--token", "1", "--owner", "x", "--yes"], "--token"),
        (["--token", "x", "--yes"], "'x' is not a fencing token"),
        (["--token", "-1", "--yes"], "'-1'"),
        (["--token", str(2**63), "--yes"], "too great"),
        (["--token", "1"], "needs --yes"),
    ],
)
def test_bad_words(lab: Lab, words: list[str], said: str) -> None:
    done = ask(lab, "release", "job", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_on_a_terminal_it_shows_the_holder_and_asks(lab: Lab) -> None:
    run, stamps = hold(lab, "--ttl", "6")
    for answer, code in (("n", 2), ("y", 0)):
        assert stamps.go_on()
        with Terminal([DISTLOCK, "release", "job", *holder(lab)], lab.environment) as terminal:
            assert str(run.pid) in terminal.read_until("?")
            terminal.press(answer + "\n")
            assert terminal.wait() == code
    assert run.wait(5) == 76
