"""What COMMAND finds in its environment: the caller's, byte for byte, and what distlock promises on top."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from functools import partial
from pathlib import Path

import pytest

from distlock.clock import boottime
from processes import DISTLOCK, Lab, wait_until

SHOW = ["/bin/cat", "/proc/self/environ"]
ADDED = {"DISTLOCK_FENCING_TOKEN", "DISTLOCK_NAME", "DISTLOCK_OWNER", "DISTLOCK_TTL", "DISTLOCK_LEASE", "DISTLOCK_RUN"}


def variables(text: bytes) -> dict[bytes, bytes]:
    """From /proc/PID/environ; each name is there once."""
    found = [entry.split(b"=", 1) for entry in text.split(b"\0") if entry]
    assert len({entry[0] for entry in found}) == len(found)
    return {entry[0]: entry[1] for entry in found}


def in_child(*options: str, caller: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The environment of a child of ``distlock run OPTIONS NAME`` started with exactly the caller's."""
    done = subprocess.run(
        [DISTLOCK, "run", *options, "n", *SHOW], capture_output=True, env=caller, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return variables(done.stdout)


def ours(environment: dict[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in environment.items() if name.startswith(b"DISTLOCK_")}


def needed(lab: Lab) -> dict[bytes, bytes]:
    """The least that keeps a run inside the test's own folder."""
    return {name.encode(): lab.environment[name].encode() for name in ("DISTLOCK_BACKEND", "DISTLOCK_STATE_DIR")}


# --- the caller's ---------------------------------------------------------------------------------------------------


def test_an_empty_environment(lab: Lab) -> None:
    """Not even HOME and PATH. The state directory is the user's real one then, so nothing is said of the lease file."""
    assert {name.decode() for name in in_child("-b", lab.backend, caller={})} | {"DISTLOCK_LEASE"} == ADDED


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {b"LANG": b"C"},
        {b"LC_ALL": b"C"},
        {b"LC_ALL": b"POSIX", b"LANG": b"de_DE.ISO-8859-1"},
        {b"LC_CTYPE": b"C"},
        {b"LC_ALL": b""},
        {b"PYTHONUTF8": b"0", b"PYTHONCOERCECLOCALE": b"0", b"LC_ALL": b"C"},
        {b"PYTHONHASHSEED": b"1", b"PYTHONDEVMODE": b"1", b"PYTHONWARNINGS": b"error", b"PYTHONOPTIMIZE": b"2"},
        {b"PATH": b"", b"HOME": b"", b"SHELL": b""},
        {b"BYTES": b"\xff\xfe\x80", b"\xffname": b"x", "Ночь".encode(): "день".encode()},
        {b"LINES": b"one\ntwo\n\n", b"CONTROL": bytes(range(1, 32)), b"EQUALS": b"=a=b=", b"EMPTY": b""},
        {b"BASH_FUNC_f%%": b"() { echo x\n}", b"with blank": b" ", b"a.b-c": b"1"},
        {b"LONG": b"x" * 100_000},
        {b"DISTLOCK_BACKENDS": b"kept", b"DISTLOCK_CONFIG": b"", b"XDISTLOCK_NAME": b"kept", b"_": b"/bin/x"},
    ],
    ids=lambda extra: repr(extra)[:40],
)
def test_exactly_the_callers_and_ours(lab: Lab, extra: dict[bytes, bytes]) -> None:
    caller = needed(lab) | extra
    found = in_child(caller=caller)
    assert {name: value for name, value in found.items() if name.decode(errors="replace") not in ADDED} == caller
    assert set(ours(found)) >= ADDED


def test_the_password_is_removed(lab: Lab) -> None:
    found = in_child(caller=needed(lab) | {b"DISTLOCK_PASSWORD": b"secret", b"PGPASSWORD": b"the job's own"})
    assert b"DISTLOCK_PASSWORD" not in found
    assert b"secret" not in b"".join(found.values())
    assert found[b"PGPASSWORD"] == b"the job's own"


def test_no_word_of_a_run_around_it_stays(lab: Lab) -> None:
    """A token of another lock would fence the wrong resource, an index would pick the wrong shard."""
    outer = {
        b"DISTLOCK_FENCING_TOKEN": b"9223372036854775807",
        b"DISTLOCK_NAME": b"outer",
        b"DISTLOCK_OWNER": b"0123",
        b"DISTLOCK_TTL": b"99",
        b"DISTLOCK_LEASE": b"/outer",
        b"DISTLOCK_HOLDER_INDEX": b"3",
        b"DISTLOCK_RUN": b"0123",
    }
    found = ours(in_child(caller=needed(lab) | outer))
    assert "DISTLOCK_HOLDER_INDEX" not in found
    for name, value in outer.items():
        assert found.get(name.decode()) != value.decode()
    assert found["DISTLOCK_RUN"] == f"0123:{found['DISTLOCK_OWNER']}"


# --- ours -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["n", "nightly backup", "/a/b", 'it\'s "$x"', "Ночной отчёт", "a=b", "12"])
@pytest.mark.parametrize("locale", [{}, {b"LC_ALL": b"C", b"PYTHONUTF8": b"0", b"PYTHONCOERCECLOCALE": b"0"}])
def test_name(lab: Lab, name: str, locale: dict[bytes, bytes]) -> None:
    done = subprocess.run(
        [DISTLOCK, "run", name.encode(), *SHOW], capture_output=True, env=needed(lab) | locale, timeout=30, check=False
    )
    assert variables(done.stdout)[b"DISTLOCK_NAME"] == name.encode()


@pytest.mark.parametrize(
    ("ttl", "shown"), [("30", "30"), ("3s", "3"), ("4.5", "4.5"), ("3500ms", "3.5"), ("2h", "7200"), ("12d", "1036800")]
)
def test_ttl_in_plain_seconds(lab: Lab, ttl: str, shown: str) -> None:
    """Without an exponent: a shell computes with it."""
    assert ours(in_child("--ttl", ttl, caller=needed(lab)))["DISTLOCK_TTL"] == shown


def test_token_and_owner_from_run_to_run(lab: Lab) -> None:
    runs = [ours(in_child(caller=needed(lab))) for _ in range(3)]
    texts = [run["DISTLOCK_FENCING_TOKEN"] for run in runs]
    assert all(re.fullmatch(r"[1-9][0-9]*", text) for text in texts)
    tokens = [int(text) for text in texts]
    assert tokens == sorted(set(tokens))
    assert tokens[-1] < 2**63
    owners = [run["DISTLOCK_OWNER"] for run in runs]
    assert len(set(owners)) == 3
    assert [run["DISTLOCK_RUN"] for run in runs] == owners


def test_nested_runs(lab: Lab) -> None:
    """The inner words win inside, the outer ones are untouched around it."""
    script = (
        'cat /proc/self/environ >outer; "$0" run --ttl 10 inner cat /proc/self/environ >inner; echo "$DISTLOCK_NAME"'
    )
    done = lab.run("--ttl", "20", "outer", "sh", "-c", script, DISTLOCK)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"outer\n", b"")
    outer, inner = (ours(variables((lab.folder / which).read_bytes())) for which in ("outer", "inner"))
    assert (outer["DISTLOCK_NAME"], inner["DISTLOCK_NAME"]) == ("outer", "inner")
    assert (outer["DISTLOCK_TTL"], inner["DISTLOCK_TTL"]) == ("20", "10")
    for one in ("OWNER", "FENCING_TOKEN", "LEASE"):
        assert outer[f"DISTLOCK_{one}"] != inner[f"DISTLOCK_{one}"]
    assert outer["DISTLOCK_RUN"] == outer["DISTLOCK_OWNER"]
    assert inner["DISTLOCK_RUN"] == f"{outer['DISTLOCK_OWNER']}:{inner['DISTLOCK_OWNER']}"


# --- the lease file -------------------------------------------------------------------------------------------------


def lease(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(path.read_text())
    return found


def deadlines(path: Path) -> tuple[float, float]:
    found = lease(path)
    soft, hard = found["soft_deadline_boottime"], found["hard_deadline_boottime"]
    assert isinstance(soft, float)
    assert isinstance(hard, float)
    return soft, hard


def others_than(path: Path, before: tuple[float, ...]) -> tuple[float, ...]:
    found = deadlines(path)
    return found if found != before else ()


def test_lease_file_from_the_start_to_the_end(lab: Lab) -> None:
    os.mkfifo(lab.folder / "end")
    process = lab.start("--ttl", "3", "n", "sh", "-c", "env; echo; read -r line <end")
    assert process.stdout
    lines = iter(process.stdout.readline, b"\n")
    words = dict(line.decode().rstrip("\n").split("=", 1) for line in lines)
    path = Path(words["DISTLOCK_LEASE"])
    assert path.is_relative_to(lab.environment["DISTLOCK_STATE_DIR"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700

    found = lease(path)
    assert found["name"] == words["DISTLOCK_NAME"]
    assert found["owner"] == words["DISTLOCK_OWNER"]
    assert str(found["token"]) == words["DISTLOCK_FENCING_TOKEN"]
    assert (found["ttl_seconds"], found["backend"]) == (3, lab.backend)

    soft, hard = deadlines(path)
    assert boottime() < soft < hard < boottime() + 3
    for _ in range(2):
        after = wait_until(partial(others_than, path, (soft, hard)), 3.0, "a renewal")
        assert after[0] > soft + 0.5
        assert after[1] > hard + 0.5
        soft, hard = after
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    (lab.folder / "end").write_text("now\n")
    assert process.wait(10) == 0
    assert list(path.parent.iterdir()) == []


def test_the_lease_file_is_gone_after_a_failure_too(lab: Lab) -> None:
    for command in ("exit 3", "kill -KILL $$"):
        done = lab.run("n", "sh", "-c", f'test -f "$DISTLOCK_LEASE" && echo "$DISTLOCK_LEASE"; {command}')
        assert done.stdout
        assert not Path(done.stdout.decode().rstrip("\n")).exists()


def test_umask_does_not_decide_who_reads_the_lease_file(lab: Lab) -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            'umask 0; exec "$0" run n sh -c \'stat -c %a "$DISTLOCK_LEASE" "${DISTLOCK_LEASE%/*}"\'',
            DISTLOCK,
        ],
        capture_output=True,
        env=lab.environment,
        timeout=30,
        check=False,
    )
    assert done.stdout == b"600\n700\n"


def test_a_state_directory_that_cannot_be_written(lab: Lab) -> None:
    """The lock is elsewhere and works: the job runs, without a lease file, and hears of it only if it asked."""
    (lab.folder / "file").write_text("")
    unusable = {"DISTLOCK_STATE_DIR": str(lab.folder / "file" / "state"), "DISTLOCK_LEASE": "/outer"}
    done = lab.run("n", *SHOW, environment=unusable)
    assert (done.returncode, done.stderr) == (0, b"")
    assert set(ours(variables(done.stdout))) >= ADDED - {"DISTLOCK_LEASE"}
    assert b"DISTLOCK_LEASE" not in variables(done.stdout)

    done = lab.run("-v", "n", "true", environment=unusable)
    assert done.returncode == 0
    first, second = done.stderr.splitlines()
    assert re.fullmatch(rb"distlock: no lease file: [^\n]*/file/state[^\n]*", first)
    assert re.fullmatch(rb"distlock: not recorded: [^\n]*/file/state[^\n]*", second)
