"""What is typed wrongly: one line that quotes it, code 2 (78 for a backend), and nothing has been started or made."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlock.quoting import quoted
from processes import DISTLOCK, Lab

CHILD = ["touch", "started"]
NAMED = ["n", *CHILD]


def refused(lab: Lab, *arguments: str | bytes, code: int = 2) -> str:
    """The one line that ``distlock run ARGUMENTS`` is refused with, behind ``distlock: ``."""
    done = lab.run(*arguments)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (code, b""), said
    assert re.fullmatch(r"distlock: [^\n]+\n", said)
    assert said.rstrip("\n").isprintable()
    assert not (lab.folder / "started").exists()
    assert not (lab.folder / "locks").exists()
    return said.removeprefix("distlock: ").rstrip("\n")


# --- values ---------------------------------------------------------------------------------------------------------

BAD_DURATIONS = [
    "",
    " ",
    "x",
    "-1",
    "+1",
    "1e3",
    "inf",
    "nan",
    "5 s",
    "5sec",
    "1m30s",
    "0x10",
    "1_0",
    ".",
    "s",
    "٣",
    "1,5",
]


@pytest.mark.parametrize("option", ["--ttl", "-w", "--wait", "--timeout", "-k", "--kill-after", "--jitter"])
def test_a_value_that_is_no_duration(lab: Lab, option: str) -> None:
    for value in ("5parsecs", "-1"):
        assert quoted(value) in refused(lab, option, value, *NAMED)


@pytest.mark.parametrize("value", BAD_DURATIONS)
def test_no_durations(lab: Lab, value: str) -> None:
    line = refused(lab, "-w", value, *NAMED)
    assert quoted(value) in line
    assert line.startswith("--wait: ")


@pytest.mark.parametrize("value", ["2.999", "2999ms", "1", "0", "0s"])
def test_a_ttl_below_three_seconds(lab: Lab, value: str) -> None:
    line = refused(lab, "--ttl", value, *NAMED)
    assert quoted(value) in line
    assert "3s" in line
    assert "pause" in line


def test_a_ttl_of_centuries(lab: Lab) -> None:
    assert "'999999d'" in refused(lab, "--ttl", "999999d", *NAMED)


@pytest.mark.parametrize(
    ("options", "value"),
    [(["-k", "1.001", "--ttl", "3"], "1.001"), (["--kill-after", "11s"], "11s"), (["--ttl", "1m", "-k", "21"], "21")],
)
def test_a_grace_above_a_third_of_the_ttl(lab: Lab, options: list[str], value: str) -> None:
    line = refused(lab, *options, *NAMED)
    assert quoted(value) in line
    assert "third" in line


def test_the_shortest_ttl_and_the_longest_grace(lab: Lab) -> None:
    assert lab.run("--ttl", "3", "-k", "1", "n", "true").returncode == 0


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "''"),
        ("a\nb", r"'a\nb'"),
        ("a\tb", r"'a\tb'"),
        ("a\x1b[31m", r"'a\x1b[31m'"),
        ("a\x7f", r"'a\x7f'"),
        ("a{b", "'a{b'"),
        ("a}b", "'a}b'"),
        (b"\xff", r"'\xff'"),
        (b"ok\xc3", r"'ok\xc3'"),
        ("x" * 201, f"'{'x' * 200}'"),
        ("ж" * 101, f"'{'ж' * 101}'"),
        ("a\u2028b", r"'a\u2028b'"),
    ],
)
def test_names_that_are_none(lab: Lab, name: str | bytes, shown: str) -> None:
    assert shown in refused(lab, name, *CHILD)


@pytest.mark.parametrize("name", ["-", "-x", "--", "--ttl", "-c"])
def test_a_name_with_a_dash_in_front(lab: Lab, name: str) -> None:
    assert quoted(name) in refused(lab, "--", name, *CHILD)


@pytest.mark.parametrize("name", ["12", "0", "9999", "1.5", "5s", "run", "a b", "Ночной отчёт", "/x/../y", "😀"])
def test_names(lab: Lab, name: str) -> None:
    """A number too: for flock(1) it would be a descriptor."""
    done = lab.run(name, "sh", "-c", 'printf %s "$DISTLOCK_NAME"')
    assert (done.returncode, done.stdout, done.stderr) == (0, name.encode(), b"")


@pytest.mark.parametrize("value", ["256", "-1", "1000", "x", "", "1.5", "0x1", " "])
def test_a_conflict_code_that_is_none(lab: Lab, value: str) -> None:
    line = refused(lab, "-E", value, *NAMED)
    assert value in line
    assert "--conflict-exit-code" in line


@pytest.mark.parametrize("value", ["", "FOO", "SIG", "0", "65", "-9", "STOP", "CONT", "CHLD", "19", "TERM INT"])
def test_a_kill_signal_that_is_none(lab: Lab, value: str) -> None:
    assert quoted(value) in refused(lab, "--kill-signal", value, *NAMED)


@pytest.mark.parametrize("value", ["TERM", "term", "SIGTERM", "15", "INT", "USR1", "KILL", "RTMIN", "SIGRTMAX"])
def test_kill_signals(lab: Lab, value: str) -> None:
    assert lab.run("--kill-signal", value, "n", "true").returncode == 0


def test_a_policy_that_is_none(lab: Lab) -> None:
    assert "'forget'" in refused(lab, "--descendants", "forget", *NAMED)
    assert "'safe'" in refused(lab, "--require", "safe", *NAMED)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", "''"),
        ("nonsense", "nonsense"),
        ("foo://h/x", "foo:"),
        ("local", "local"),
        ("local:dir", "local:dir"),
        ("local:/dir", "local:/dir"),
        ("local://dir", "local://dir"),
        ("local:///", "local:///"),
        ("local:///d?x=1", "local:///d?x=1"),
        ("local:///d%zz", "local:///d%zz"),
        ("LOCAL:", "LOCAL:"),
        ("/tmp/x", "/tmp/x"),
        ("\x1b[31m:", r"\x1b[31m"),
    ],
)
@pytest.mark.parametrize("where", ["option", "environment"])
def test_a_backend_that_is_none(lab: Lab, url: str, shown: str, where: str) -> None:
    if where == "option":
        assert shown in refused(lab, "-b", url, *NAMED, code=78)
    elif url:  # an empty variable is an unset one
        lab.environment["DISTLOCK_BACKEND"] = url
        assert shown in refused(lab, *NAMED, code=78)


def test_what_may_be_secret_in_a_wrong_backend_is_not_shown(lab: Lab) -> None:
    assert "hunter2" not in refused(lab, "-b", "nosuch://me:hunter2@host/x", *NAMED, code=78)


# --- words in wrong places ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], "NAME"),
        (["-n"], "NAME"),
        (["--"], "NAME"),
        (["n"], "COMMAND"),
        (["n", "--"], "COMMAND"),
        (["-n", "n"], "COMMAND"),
        (["--ttl"], "--ttl"),
        (["n", "-c"], "-c takes exactly one argument"),
        (["n", "-c", "touch started", "more"], "-c takes exactly one argument"),
        (["n", "-c", "touch started", ""], "-c takes exactly one argument"),
        (["--bogus", *NAMED], "--bogus"),
        (["--tt", "5", *NAMED], "--tt"),
        (["--non", *NAMED], "--non"),
        (["-Z", *NAMED], "-Z"),
        (["-nZ", *NAMED], "-Z"),
        (["-c", "touch started"], "-c"),
        (["--nonblock=yes", *NAMED], "--nonblock"),
        ([b"--\xff\x1b[31m\n", *NAMED], r"--\xff\x1b[31m"),
    ],
)
def test_missing_and_unknown_words(lab: Lab, arguments: list[str | bytes], shown: str) -> None:
    assert shown in refused(lab, *arguments)


@pytest.mark.parametrize("word", ["-n", "--ttl", "--ttl=5", "-w", "-E", "-v", "-x", "-", "---", "--help", "-h", "-C"])
def test_options_behind_the_name(lab: Lab, word: str) -> None:
    line = refused(lab, "n", word, *CHILD)
    assert quoted(word) in line
    assert "options go before NAME" in line


@pytest.mark.parametrize(
    ("options", "shown"), [(["-n", "-w", "5"], "'5'"), (["--timeout", "1m", "--nb"], "'1m'"), (["-nw0.1"], "'0.1'")]
)
def test_not_waiting_and_waiting(lab: Lab, options: list[str], shown: str) -> None:
    line = refused(lab, *options, *NAMED)
    assert shown in line
    assert "contradict" in line


@pytest.mark.parametrize("options", [["-n", "-w", "0"], ["-w", "0s", "-n"], ["-w", "5", "-w", "0", "-n"]])
def test_not_waiting_twice_is_no_contradiction(lab: Lab, options: list[str]) -> None:
    assert lab.run(*options, "n", "true").returncode == 0


@pytest.mark.parametrize(
    ("option", "reason"),
    [
        ("-s", "exclusive"),
        ("--shared", "exclusive"),
        ("-u", "released when COMMAND ends"),
        ("--unlock", "released when COMMAND ends"),
        ("-F", "renew"),
        ("--no-fork", "renew"),
    ],
)
def test_options_of_flock_that_have_no_meaning_here(lab: Lab, option: str, reason: str) -> None:
    line = refused(lab, option, *NAMED)
    assert option in line
    assert reason in line


@pytest.mark.parametrize("options", [["-x"], ["-e"], ["--exclusive"], ["-o"], ["--close"], ["-xeon"]])
def test_options_of_flock_that_change_nothing(lab: Lab, options: list[str]) -> None:
    done = lab.run(*options, "n", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ran\n", b"")


def test_flock_spellings(lab: Lab) -> None:
    """Values in the same word, and clusters."""
    for options in (["-w5"], ["-nE9"], ["--wait=5"], ["-xnE", "9"], ["--conflict-exit-code=9"]):
        assert lab.run(*options, "n", "true").returncode == 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ([""], 127),
        (["no-such-command"], 127),
        (["./no-such-file"], 127),
        (["/"], 126),
        (["./plain"], 126),
        (["--", "--"], 127),
        (["--", "-c", "touch started"], 127),
    ],
)
def test_a_command_that_cannot_be_started_is_found_out_before_the_lock(lab: Lab, command: list[str], code: int) -> None:
    (lab.folder / "plain").write_text("touch started")
    word = next((word for word in command if word != "--"), "--")
    assert quoted(word) in refused(lab, "n", *command, code=code)


# --- -c -------------------------------------------------------------------------------------------------------------


def test_a_command_string_goes_to_the_shell_of_the_user(lab: Lab) -> None:
    shell = lab.folder / "my shell"
    shell.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    shell.chmod(0o755)
    string = "echo 'a  b'; exit 3\n# \"$x\""
    done = lab.run("n", "-c", string, environment={"SHELL": str(shell)})
    assert (done.returncode, done.stdout, done.stderr) == (0, f"<-c><{string}>".encode(), b"")


@pytest.mark.parametrize("environment", [{}, {"SHELL": ""}])
def test_a_command_string_without_a_shell_of_the_user(lab: Lab, environment: dict[str, str]) -> None:
    done = lab.run("n", "-c", 'echo "$0"; readlink /proc/$$/exe; exit 3', environment=environment)
    shell = Path("/bin/sh").resolve()
    assert (done.returncode, done.stdout, done.stderr) == (3, f"/bin/sh\n{shell}\n".encode(), b"")


@pytest.mark.parametrize("string", ["", "--help", "-n", "--"])
def test_a_command_string_may_be_anything(lab: Lab, string: str) -> None:
    shell = lab.folder / "shell"
    shell.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    shell.chmod(0o755)
    assert lab.run("n", "-c", string, environment={"SHELL": str(shell)}).stdout == f"<-c><{string}>".encode()


def test_a_shell_of_the_user_that_is_not_there(lab: Lab) -> None:
    lab.environment["SHELL"] = "/no/shell"
    assert "'/no/shell'" in refused(lab, "n", "-c", "touch started", code=127)


# --- help -----------------------------------------------------------------------------------------------------------


def distlock(lab: Lab, *words: str, prelude: str = 'exec "$@"') -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", prelude, "sh", DISTLOCK, *words],
        capture_output=True,
        env=lab.environment,
        cwd=lab.folder,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        (["--help"], b"Usage: distlock "),
        (["-h"], b"Usage: distlock "),
        (["run", "--help"], b"Usage: distlock run "),
        (["run", "-h", *NAMED], b"Usage: distlock run "),
        (["run", "--ttl", "1", "--help", "n"], b"Usage: distlock run "),
        (["--version"], b"distlock "),
        (["-V", "run", *NAMED], b"distlock "),
    ],
)
def test_help_and_version(lab: Lab, words: list[str], begin: bytes) -> None:
    done = distlock(lab, *words)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(begin)
    assert list(lab.folder.iterdir()) == []


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "nonsense"])
def test_help_in_any_locale(lab: Lab, locale: str) -> None:
    lab.environment.update(LC_ALL=locale, PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    done = distlock(lab, "run", "--help")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("prelude", ['exec "$@" >&-', '"$@" | true'])
def test_help_that_nobody_reads(lab: Lab, prelude: str) -> None:
    assert distlock(lab, "run", "--help", prelude=prelude).stderr == b""


@pytest.mark.parametrize(("words", "shown"), [([], "ommand"), (["nosuch"], "nosuch"), (["--nosuch"], "--nosuch")])
def test_no_such_subcommand(lab: Lab, words: list[str], shown: str) -> None:
    done = distlock(lab, *words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert re.fullmatch(rf"distlock: [^\n]*{shown}[^\n]*\n", done.stderr.decode())


# --- anything -------------------------------------------------------------------------------------------------------

_WORDS = st.one_of(
    st.sampled_from(
        [
            *("run", "n", "--", "-c", "true", "false", "-n", "-nq", "-v", "-q", "-x", "-s", "-E", "-E300", "-w0", "-w"),
            *("0", "3", "75", "--ttl", "--ttl=3", "-k1", "--label", "--descendants", "kill", "-b", "local:", "-h", "="),
            *("--kill-signal", "TERM", "--nonblock=1", "--wait=", "-", "---", "", "\n", "\x1b[31m"),
        ]
    ).map(str.encode),
    st.binary(max_size=8).map(lambda raw: raw.replace(b"\0", b"")),
)
_CODES = {0, 2, 75, 78, 126, 127}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_WORDS, max_size=7))
def test_never_a_traceback(lab: Lab, words: Sequence[bytes]) -> None:
    """Whatever is typed: a documented code, and on stderr nothing but whole lines of ours."""
    done = subprocess.run(
        [DISTLOCK, "run", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**lab.environment, "PATH": "/nowhere", "SHELL": "/bin/true"},
        timeout=30,
        cwd=lab.folder,
        check=False,
    )
    said = done.stderr.decode()
    assert re.fullmatch(r"(distlock: [^\n]+\n)*", said)
    assert done.returncode in _CODES, said
    assert bool(said) == (done.returncode != 0)
    assert done.stdout == b"" or done.stdout.startswith(b"Usage: ")
