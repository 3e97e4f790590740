"""distlock's own words: when there are some, what they say, and that they harm nothing where nobody reads them."""

from __future__ import annotations

import os
import pty
import pwd
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from processes import DISTLOCK, Lab, wait_until

NAME = "nightly backup"
SINCE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@dataclass
class Holder:
    """Somebody who holds the lock until ``end``."""

    pid: int
    token: str
    fifo: Path

    @property
    def described(self) -> str:
        """A pattern."""
        who = f"{os.uname().nodename}:{self.pid} ({pwd.getpwuid(os.geteuid()).pw_name})"
        return rf"held by {re.escape(who)}.* since {SINCE}, token {self.token}"

    def end(self) -> None:
        self.fifo.write_text("now\n")


def hold(lab: Lab, name: str = NAME, *options: str) -> Holder:
    fifo = lab.folder / "end"
    os.mkfifo(fifo)
    process = lab.start(*options, name, "sh", "-c", 'echo "$DISTLOCK_FENCING_TOKEN"; read -r line <end')
    assert process.stdout
    return Holder(process.pid, process.stdout.readline().decode().rstrip("\n"), fifo)


@pytest.fixture
def holder(lab: Lab) -> Holder:
    return hold(lab)


def said(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    """What it said, without ``distlock: `` and the end of the line: nothing, or one line. Nothing on stdout, ever."""
    assert (done.returncode, done.stdout) == (code, b""), done.stderr
    if not done.stderr:
        return ""
    text = done.stderr.decode()
    assert re.fullmatch(r"distlock: [^\n]+\n", text)
    assert text.rstrip("\n").isprintable()
    return text.removeprefix("distlock: ").rstrip("\n")


def at_terminal(lab: Lab, *arguments: str) -> tuple[int, str]:
    """``distlock run ARGUMENTS`` with a terminal as stderr alone: exit code and what came there."""
    reading, terminal = pty.openpty()
    try:
        process = lab.start(*arguments, stderr=terminal)
        os.close(terminal)
        output = b""
        while True:
            try:
                output += os.read(reading, 4096)
            except OSError:  # nobody has it open any more
                break
        assert process.stdout
        assert process.stdout.read() == b""
        return process.wait(10), output.decode().replace("\r\n", "\n")
    finally:
        os.close(reading)


# --- silence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["-q"], ["-n"], ["-w", "5"], ["--ttl", "3"], ["--label", "x"], ["-E", "0"]])
@pytest.mark.parametrize("command", ["exit 0", "exit 3", "kill -TERM $$"])
def test_nothing_is_said_of_a_run(lab: Lab, options: list[str], command: str) -> None:
    done = lab.run(*options, NAME, "sh", "-c", command)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_nothing_is_said_of_a_run_at_a_terminal(lab: Lab) -> None:
    assert at_terminal(lab, NAME, "sh", "-c", "exit 3") == (3, "")


def test_the_words_of_the_command_are_its_own(lab: Lab) -> None:
    done = lab.run(NAME, "sh", "-c", "echo out; echo distlock: err >&2; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"distlock: err\n")


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["-n"], 75),
        (["--nb"], 75),
        (["-w", "0"], 75),
        (["--wait", "0s"], 75),
        (["-n", "-q"], 75),
        (["-n", "-E", "0"], 0),
        (["-w", "0", "-E", "9", "-q"], 9),
    ],
)
def test_a_conflict_is_no_news_to_cron(lab: Lab, options: list[str], code: int) -> None:
    assert said(lab.run(*options, NAME, "touch", "started"), code) == ""
    assert not (lab.folder / "started").exists()


def test_nothing_is_said_of_a_wait_that_was_worth_it(lab: Lab, holder: Holder) -> None:
    process = lab.start(NAME, "sh", "-c", "exit 3")
    wait_until(lambda: lab.waiters() == 1)
    holder.end()
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (3, b"", b"")


# --- words ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("options", "code"), [(["-n"], 75), (["-w", "0"], 75), (["-n", "-E", "0"], 0)])
def test_a_conflict_is_explained_when_asked(lab: Lab, holder: Holder, options: list[str], code: int) -> None:
    done = lab.run("-v", *options, NAME, "true")
    assert (done.returncode, done.stdout) == (code, b"")
    lines = done.stderr.decode().splitlines()
    assert re.fullmatch(f"distlock: '{NAME}': {holder.described}", lines[-1])


@pytest.mark.parametrize(("options", "code"), [(["-n"], 75), (["-w", "0"], 75), (["-n", "-E", "0"], 0)])
def test_a_conflict_is_explained_at_a_terminal(lab: Lab, holder: Holder, options: list[str], code: int) -> None:
    ended, output = at_terminal(lab, *options, NAME, "true")
    assert ended == code
    assert re.fullmatch(f"distlock: '{NAME}': {holder.described}\n", output)


@pytest.mark.usefixtures("holder")
def test_a_conflict_at_a_terminal_that_asked_for_silence(lab: Lab) -> None:
    assert at_terminal(lab, "-n", "-q", NAME, "true") == (75, "")


@pytest.mark.parametrize(
    ("options", "code", "limit"),
    [
        (["-w", "0.2"], 75, "200ms"),
        (["-w", "150ms", "-q"], 75, "150ms"),
        (["--wait", "0.1", "-E", "0"], 0, "100ms"),
        (["--timeout", "0.1s", "-E", "0", "-q"], 0, "100ms"),
    ],
)
def test_a_wait_in_vain_is_always_told(lab: Lab, holder: Holder, options: list[str], code: int, limit: str) -> None:
    line = said(lab.run(*options, NAME, "true"), code)
    assert re.fullmatch(f"'{NAME}': not had within {limit}: {holder.described}", line)


def test_whom_a_wait_is_for(lab: Lab, holder: Holder) -> None:
    process = lab.start("-v", NAME, "true")
    assert process.stderr
    line = process.stderr.readline().decode().rstrip("\n")
    assert re.fullmatch(f"distlock: waiting: {holder.described}", line)
    holder.end()
    assert process.wait(20) == 0


def test_a_single_try_does_not_wait(lab: Lab, holder: Holder) -> None:
    line = said(lab.run("-n", "-v", NAME, "true"), 75)
    assert re.fullmatch(f"'{NAME}': {holder.described}", line)


def test_the_label_of_the_holder(lab: Lab) -> None:
    holder = hold(lab, NAME, "--label", "it's \x1b[31mred\n, since never, token 1")
    line = said(lab.run("-w", "0.1", NAME, "true"), 75)
    assert re.fullmatch(f"'{NAME}': not had within 100ms: {holder.described}", line)
    assert r"'it\'s \x1b[31mred\n, since never, token 1'" in line


@pytest.mark.parametrize("options", [["-n"], ["-q"], ["-n", "-q"], []])
def test_a_run_inside_itself_is_always_told(lab: Lab, options: list[str]) -> None:
    line = said(lab.run(NAME, DISTLOCK, "run", *options, NAME, "true"), 75)
    assert line.startswith(f"'{NAME}' ")
    assert "inside" in line


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([NAME, "no-such-command"], 127),
        ([NAME, "/"], 126),
        (["--ttl", "1", NAME, "true"], 2),
        (["-b", "nosuch:", NAME, "true"], 78),
        (["-b", "local:///dev/null/x", "-n", NAME, "true"], 69),
    ],
)
@pytest.mark.parametrize("quiet", [[], ["-q"], ["-q", "-E", "0"]])
def test_errors_are_always_told(lab: Lab, arguments: list[str], code: int, quiet: list[str]) -> None:
    assert said(lab.run(*quiet, *arguments), code)


# --- whatever is in them --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "locale", [{}, {"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_words_in_any_locale(lab: Lab, locale: dict[str, str]) -> None:
    name = "Ночной отчёт 日本"
    holder = hold(lab, name)
    line = said(lab.run("-w", "0.1", name, "true", environment=locale), 75)
    assert re.fullmatch(f"'{name}': not had within 100ms: {holder.described}", line)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("it's", r"it\'s"),
        ('say "x"', 'say "x"'),
        (r"a\nb\x1b[31m", r"a\\nb\\x1b[31m"),
        ("%s %d", "%s %d"),
        ("a\u202eb", r"a\u202eb"),
    ],
)
def test_names_in_words(lab: Lab, name: str, shown: str) -> None:
    hold(lab, name)
    assert said(lab.run("-w", "0.1", name, "true"), 75).startswith(f"'{shown}': not had")


def test_a_path_cannot_colour_the_terminal(lab: Lab) -> None:
    assert r"/dev/null/\x1b[31m" in said(lab.run("-b", "local:///dev/null/%1b[31m", "-n", NAME, "true"), 69)


# --- where nobody reads them ----------------------------------------------------------------------------------------


Stderr = Literal["closed", "broken pipe"]
unheard = pytest.mark.parametrize("stderr", ["closed", "broken pipe"])


def code_of(lab: Lab, stderr: Stderr, *arguments: str) -> int:
    """How ``distlock run ARGUMENTS`` ends with a stderr that takes nothing."""
    prelude = {"closed": 'exec "$@" 2>&-', "broken pipe": 'exec "$@"'}[stderr]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            ["sh", "-c", prelude, "sh", DISTLOCK, "run", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=writing,
            env=lab.environment,
            cwd=lab.folder,
            timeout=30,
            check=False,
        ).returncode
    finally:
        os.close(writing)


@unheard
@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15)])
def test_the_commands_own_end(lab: Lab, stderr: Stderr, command: str, code: int) -> None:
    """With a line to be said before it starts, one when it has ended, and one when everything is over."""
    (lab.folder / "file").write_text("")
    lab.environment["DISTLOCK_STATE_DIR"] = str(lab.folder / "file" / "state")
    script = f"sleep 1 & {command}"
    heard = lab.run("-v", NAME, "sh", "-c", script).stderr
    starts = [b"no lease file", b"COMMAND ended and left 1 of its", b"not recorded"]
    assert [line.startswith(b"distlock: " + start) for line, start in zip(heard.splitlines(), starts, strict=True)] == [
        True
    ] * 3
    assert code_of(lab, stderr, "-v", NAME, "sh", "-c", script) == code


@unheard
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--ttl", "x", NAME, "true"], 2), ([NAME, "/"], 126), (["-b", "nosuch:", NAME, "true"], 78), (["--help"], 0)],
)
def test_errors(lab: Lab, stderr: Stderr, arguments: list[str], code: int) -> None:
    assert code_of(lab, stderr, *arguments) == code


@unheard
@pytest.mark.parametrize("options", [["-v", "-n"], ["-w", "0.1"], ["-v", "-w", "0.1"]])
@pytest.mark.usefixtures("holder")
def test_conflicts(lab: Lab, stderr: Stderr, options: list[str]) -> None:
    assert code_of(lab, stderr, *options, "-E", "9", NAME, "true") == 9
