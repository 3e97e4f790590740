"""What COMMAND inherits: the same as without distlock in front of it. Every test runs a command twice, once alone and
once behind ``distlock run``, from the same caller, and compares what the two saw."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from processes import DISTLOCK, Lab, wait_until

RUN = [DISTLOCK, "run", "n"]
STATUS = ["cat", "/proc/self/status"]  # cat changes nothing about its own signals, an interpreter would
OF_THE_PROCESS = {"Pid", "Tgid", "Ngid", "NStgid", "NSpid", "PPid", "NSpgid", "FDSize", "SigQ"}
"""Fields of /proc/self/status in which any two processes may differ; so they do in those of memory and of switches."""

PROBE = """
import json, os, resource, sys
def descriptor(number):
    try:
        with open(f"/proc/self/fdinfo/{number}") as file:
            flags = [line for line in file.read().splitlines() if line.startswith(("pos:", "flags:"))]
        return [os.readlink(f"/proc/self/fd/{number}"), *flags]
    except OSError:
        return None  # the listing's own
numbers = sorted(map(int, os.listdir("/proc/self/fd")))
umask = os.umask(0)
seen = {
    "descriptors": {str(n): found for n in numbers if (found := descriptor(n))},
    "folder": os.getcwd(),
    "umask": umask,
    "nice": os.nice(0),
    "limits": open("/proc/self/limits").read(),
    "processors": sorted(os.sched_getaffinity(0)),
    "groups": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), *os.getgroups()],
    "session": os.getsid(0),
    "priority of being killed": open("/proc/self/oom_score_adj").read(),
}
with open(sys.argv[1], "w") as file:
    json.dump(seen, file)
"""


def call(
    lab: Lab, prelude: str, command: Sequence[str | bytes], stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """The command as a caller starts it that does ``prelude`` first, a piece of shell that ends in "$@"."""
    return subprocess.run(
        ["sh", "-c", prelude, "sh", *command],
        input=stdin,
        capture_output=True,
        cwd=lab.folder,
        env=lab.environment,
        timeout=30,
        check=False,
    )


def same(lab: Lab, prelude: str, command: Sequence[str | bytes], stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    """Code, stdout and stderr, which are the same alone and behind distlock."""
    alone, behind = (call(lab, prelude, [*wrapper, *command], stdin) for wrapper in ([], RUN))
    assert (behind.returncode, behind.stdout, behind.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    return behind.returncode, behind.stdout, behind.stderr


def probed(lab: Lab, prelude: str) -> dict[str, object]:
    """What the probe saw, which is the same alone and behind distlock."""
    seen = []
    for wrapper in ([], RUN):
        out = lab.folder / "seen.json"
        done = call(lab, prelude, [*wrapper, sys.executable, "-I", "-S", "-c", PROBE, str(out)])
        assert done.returncode == 0, done.stderr
        seen.append(json.loads(out.read_text()))
        out.unlink()
    # Each run has pipes of its own.
    alone, behind = (json.loads(_without_pipe_numbers(json.dumps(one))) for one in seen)
    assert behind == alone
    found: dict[str, object] = behind
    return found


def _without_pipe_numbers(text: str) -> str:
    head, *rest = text.split("pipe:[")
    return head + "".join("pipe:[" + part[part.index("]") :] for part in rest)


def status(text: bytes) -> dict[str, str]:
    fields = dict(line.split(":", 1) for line in text.decode().splitlines())
    return {
        key: value.strip()
        for key, value in fields.items()
        if key not in OF_THE_PROCESS and not key.startswith(("Vm", "Rss", "Hugetlb")) and "ctxt" not in key
    }


def same_status(lab: Lab, prelude: str) -> dict[str, str]:
    """Fields of /proc/self/status of a command, which are the same alone and behind distlock."""
    alone, behind = (status(call(lab, prelude, [*wrapper, *STATUS]).stdout) for wrapper in ([], RUN))
    assert behind == alone
    assert "SigIgn" in behind
    return behind


def mask(*numbers: int) -> str:
    return f"{sum(1 << (number - 1) for number in numbers):016x}"


def ignored(*numbers: int) -> str:
    """Beside what whoever started these tests ignores (and Python, for itself alone)."""
    fields = status(Path("/proc/self/status").read_bytes())
    own = int(mask(signal.SIGPIPE, signal.SIGXFSZ), 16)
    return f"{int(fields['SigIgn'], 16) & ~own | int(mask(*numbers), 16):016x}"


# --- arguments ------------------------------------------------------------------------------------------------------

ARGUMENTS: list[list[str | bytes]] = [
    [],
    [""],
    ["", "", " "],
    ["a b", "  two  ", "tab\there", "line\nbreak\n", "\r"],
    ["it's", '"', "\\", "`date`", "$HOME", "$(date)", "*", "~", "!", ";", "&", "|", ">out", "#", "a=b"],
    [b"\xff\xfe", b"\xc3", b"\x01\x1b[31m", "Ночь", "日本"],
    ["--ttl", "--ttl", "3", "--ttl=1"],
    ["--help"],
    ["-h", "--version", "-V"],
    ["-n", "-w", "0", "-E", "5", "-q", "-v", "-x", "-s", "-u", "-F", "-o", "-c", "false"],
    ["--"],
    ["--", "--", "-", "---"],
    ["run", "distlock"],
    ["x" * 100_000],
]


@pytest.mark.parametrize("dashes", [[], ["--"]], ids=["NAME COMMAND", "NAME -- COMMAND"])
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=lambda found: repr(found)[:30])
def test_arguments_arrive_as_they_are(lab: Lab, arguments: list[str | bytes], dashes: list[str]) -> None:
    code = "import sys; sys.stdout.buffer.write(open('/proc/self/cmdline', 'rb').read())"
    words: list[str | bytes] = [sys.executable, "-I", "-S", "-c", code, *arguments]
    done = lab.run("n", *dashes, *words)
    expected = b"".join(os.fsencode(word) + b"\0" for word in words)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, b"")


def test_a_command_that_begins_with_a_dash(lab: Lab) -> None:
    program = lab.folder / "-odd"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    done = lab.run("n", "--", "-odd", "-n", environment={"PATH": f"{lab.folder}:{os.environ['PATH']}"})
    assert (done.returncode, done.stdout) == (0, b"<-n>")


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_bytes_in_any_locale(lab: Lab, locale: dict[str, str]) -> None:
    done = lab.run("n", "printf", "%s", "Ночь".encode(), b"\xff", environment=locale)
    assert (done.returncode, done.stdout) == (0, "Ночь".encode() + b"\xff")


# --- the process ----------------------------------------------------------------------------------------------------


def test_nothing_special(lab: Lab) -> None:
    assert probed(lab, '"$@"')["folder"] == str(lab.folder)
    same_status(lab, '"$@"')


def test_folder_umask_nice_and_limits(lab: Lab) -> None:
    prelude = 'cd /usr; umask 027; ulimit -S -n 321; ulimit -S -c 0; ulimit -S -f 4000; exec nice -n 5 "$@"'
    seen = probed(lab, prelude)
    assert (seen["folder"], seen["umask"]) == ("/usr", 0o027)
    assert seen["nice"] == os.nice(0) + 5
    assert "Max open files            321" in str(seen["limits"])


def test_a_folder_that_was_removed(lab: Lab) -> None:
    code, out, _ = same(lab, 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', ["readlink", "/proc/self/cwd"])
    assert (code, out) == (0, f"{lab.folder}/gone (deleted)\n".encode())


# --- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ("HUP", [1]),
        ("INT,QUIT", [2, 3]),
        ("TERM", [15]),
        ("USR1,USR2", [10, 12]),
        ("CHLD", [17]),
        ("TSTP,TTIN,TTOU", [20, 21, 22]),
        ("ALRM,WINCH,IO,URG,34,64", [14, 28, 29, 23, 34, 64]),
    ],
)
def test_ignored_signals_stay_ignored(lab: Lab, names: str, numbers: list[int]) -> None:
    seen = same_status(lab, f'exec env --ignore-signal={names} "$@"')
    assert (seen["SigIgn"], seen["SigBlk"], seen["SigCgt"]) == (ignored(*numbers), mask(), mask())


@pytest.mark.parametrize(
    ("names", "numbers"),
    [
        ("USR1", [10]),
        ("HUP,INT,QUIT,TERM,USR2", [1, 2, 3, 15, 12]),
        ("CHLD,CONT,TSTP,TTIN,TTOU,IO", [17, 18, 20, 21, 22, 29]),
        ("PIPE,ALRM,34,64", [13, 14, 34, 64]),
    ],
)
def test_blocked_signals_stay_blocked(lab: Lab, names: str, numbers: list[int]) -> None:
    seen = same_status(lab, f'exec env --block-signal={names} "$@"')
    assert (seen["SigBlk"], seen["SigIgn"], seen["SigPnd"], seen["ShdPnd"]) == (
        mask(*numbers),
        ignored(),
        mask(),
        mask(),
    )


@pytest.mark.parametrize(("name", "number"), [("PIPE", 13), ("XFSZ", 25)])
def test_the_one_documented_difference(lab: Lab, name: str, number: int) -> None:
    """CPython has overwritten these two before any code of ours runs, so nobody knows what the caller had set."""
    alone, behind = (
        status(call(lab, f'exec env --ignore-signal={name} "$@"', [*wrapper, *STATUS]).stdout) for wrapper in ([], RUN)
    )
    assert (alone.pop("SigIgn"), behind.pop("SigIgn")) == (ignored(number), ignored())
    assert behind == alone


def test_nohup(lab: Lab) -> None:
    seen = status(call(lab, 'nohup "$@"', [*RUN, *STATUS]).stdout)
    assert seen["SigIgn"] == ignored(1)
    same_status(lab, 'nohup "$@"')


def test_background_of_a_shell_without_job_control(lab: Lab) -> None:
    assert same_status(lab, '"$@" & wait $!')["SigIgn"] == ignored(2, 3)


@pytest.mark.parametrize("command", ["exit 0", "exit 3", "exit 255", "kill -TERM $$", "kill -KILL $$"])
def test_status_is_kept_while_the_caller_ignores_the_end_of_children(lab: Lab, command: str) -> None:
    """Such a caller would have the kernel reap our child, too."""
    alone, behind = (
        subprocess.run(
            ["env", "--ignore-signal=CHLD", *wrapper, "sh", "-c", command],
            env=lab.environment,
            timeout=30,
            check=False,
        ).returncode
        for wrapper in ([], RUN)
    )
    assert behind == alone


# --- descriptors ----------------------------------------------------------------------------------------------------


def test_no_descriptor_but_the_callers(lab: Lab) -> None:
    (lab.folder / "some file").write_text("inherited")
    seen = probed(lab, 'exec "$@" 7>>out 9<"some file"')["descriptors"]
    assert isinstance(seen, dict)
    # The probe has closed the folder that it listed by the time it looks.
    assert set(seen) == {"0", "1", "2", "7", "9"}
    assert seen["9"][0] == f"{lab.folder}/some file"
    assert same(lab, 'exec "$@" 9<"some file"', ["sh", "-c", "cat <&9"])[1] == b"inherited"


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "02", "12", "012"])
def test_closed_standard_descriptors_stay_closed(lab: Lab, closed: str) -> None:
    seen = probed(lab, 'exec "$@" 9</dev/null ' + " ".join(f"{number}>&-" for number in closed))["descriptors"]
    assert isinstance(seen, dict)
    assert set(seen) == {"0", "1", "2", "9"} - set(closed)


@pytest.mark.parametrize("closed", ["0", "1", "2", "01", "02", "12", "012"])
def test_the_exit_code_with_closed_standard_descriptors(lab: Lab, closed: str) -> None:
    code, out, err = same(lab, 'exec "$@" ' + " ".join(f"{n}>&-" for n in closed), ["sh", "-c", "exit 5"])
    assert (code, out, err) == (5, b"", b"")


def test_the_callers_pipe_ends_with_the_run(lab: Lab) -> None:
    """Nothing of distlock keeps a descriptor beyond the run: the reader of a pipe would wait for its end for ever."""
    code, out, _ = same(lab, '{ "$@" 9>&1 >/dev/null; } | cat', ["sh", "-c", "echo done >&9"])
    assert (code, out) == (0, b"done\n")


# --- the streams ----------------------------------------------------------------------------------------------------


def test_a_megabyte_of_any_bytes(lab: Lab) -> None:
    data = random.Random(0).randbytes(1_000_000)
    assert same(lab, '"$@"', ["cat"], stdin=data) == (0, data, b"")
    assert same(lab, '"$@"', ["sh", "-c", "cat >&2; exit 3"], stdin=data) == (3, b"", data)


def test_a_writer_whose_reader_has_gone_dies_quietly(lab: Lab) -> None:
    alone, behind = (
        subprocess.run(
            ["bash", "-c", '"$@" | head -n 1; echo "${PIPESTATUS[0]}"', "bash", *wrapper, "yes"],
            capture_output=True,
            env=lab.environment,
            timeout=30,
            check=False,
        )
        for wrapper in ([], RUN)
    )
    assert (behind.stdout, behind.stderr) == (alone.stdout, alone.stderr) == (b"y\n141\n", b"")


def test_stdin_is_left_where_the_command_left_it(lab: Lab) -> None:
    (lab.folder / "lines").write_text("one\ntwo\nthree\n")
    prelude = '{ read -r first; "$@"; echo "then $(cat)"; } <lines'
    assert same(lab, prelude, ["sh", "-c", 'read -r second; echo "read $second"'])[1] == b"read two\nthen three\n"


def test_output_is_seen_at_once(lab: Lab) -> None:
    os.mkfifo(lab.folder / "end")
    process = lab.start("n", "sh", "-c", "printf x; printf y >&2; read -r line <end; exit 4")
    assert process.stdout
    assert process.stderr
    assert (process.stdout.read(1), process.stderr.read(1)) == (b"x", b"y")
    assert process.poll() is None
    Path(lab.folder, "end").write_text("now\n")
    assert wait_until(lambda: process.poll() is not None)
    assert process.returncode == 4
