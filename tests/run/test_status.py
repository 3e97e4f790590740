"""status and inspect: nothing that is held is invisible, and what programs read stays as it is."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distlock.backends import open_backend
from distlock.backends.base import Client, Environment, Request
from distlock.clock import boottime
from processes import DISTLOCK, Lab, wait_until
from terminals import Terminal

UTC = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
CLIENT_KEYS = ["host", "pid", "user", "command", "label", "owner", "started_at"]
LOCK_KEYS = [
    "name",
    "state",
    "token",
    "holder",
    "ttl_seconds",
    "expires_in_seconds",
    "waiters",
    "last_success_at",
    "max_holders",
    "holders",
]


def ask(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DISTLOCK, *arguments], env=lab.environment, capture_output=True, text=True, check=False, cwd=lab.folder
    )


def answer(lab: Lab, *arguments: str) -> dict[str, Any]:
    done = ask(lab, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def hold(lab: Lab, name: str, *options: str) -> subprocess.Popen[bytes]:
    run = lab.start(*options, name, "--", "sh", "-c", "echo started; exec sleep 60")
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    return run


def test_keys_of_inspect(lab: Lab) -> None:
    before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    run = hold(lab, "job", "--ttl", "20", "--label", "the weekly one")
    found = answer(lab, "inspect", "job")
    assert list(found) == ["version", *LOCK_KEYS, "keys"]
    assert found["version"] == 1
    assert (found["name"], found["state"], found["ttl_seconds"]) == ("job", "held", 20)
    assert 15 < found["expires_in_seconds"] <= 20
    assert isinstance(found["token"], int)
    assert found["waiters"] == []
    holder = found["holder"]
    assert list(holder) == CLIENT_KEYS
    assert (holder["pid"], holder["command"], holder["label"]) == (run.pid, "sh", "the weekly one")
    assert holder["host"] == os.uname().nodename
    assert re.fullmatch(r"[0-9a-f]{32}", holder["owner"])
    assert UTC.fullmatch(holder["started_at"])
    assert before <= holder["started_at"]


def test_keys_of_status(lab: Lab) -> None:
    hold(lab, "b")
    hold(lab, "a")
    found = answer(lab, "status")
    assert list(found) == ["version", "backend", "locks"]
    assert (found["version"], found["backend"]) == (1, lab.backend)
    assert [lock["name"] for lock in found["locks"]] == ["a", "b"]
    for lock in found["locks"]:
        assert list(lock) == LOCK_KEYS
        single = answer(lab, "inspect", lock["name"])
        for one in (lock, single, *lock["holders"], *single["holders"]):
            assert 0 < one.pop("expires_in_seconds") <= 30
        assert {key: single[key] for key in LOCK_KEYS if key != "expires_in_seconds"} == lock
        assert lock["holders"] == [
            {"holder_index": 0, **{key: lock[key] for key in ("state", "token", "holder", "ttl_seconds")}}
        ]


def test_waiters_in_the_order_in_which_they_will_be_served(lab: Lab) -> None:
    hold(lab, "job")
    waiters = []
    for _ in range(3):
        waiters.append(lab.start("job", "--", "true"))
        wait_until(lambda: len(answer(lab, "inspect", "job")["waiters"]) == len(waiters))
    assert [waiter["pid"] for waiter in answer(lab, "inspect", "job")["waiters"]] == [run.pid for run in waiters]
    text = ask(lab, "inspect", "job").stdout
    assert next(line for line in text.splitlines() if f":{waiters[0].pid} " in line).startswith("waiter 1")
    (row,) = [line for line in ask(lab, "status").stdout.splitlines() if line.startswith("job")]
    assert row.split()[-1] == "3"


def test_free_locks_only_when_asked_for(lab: Lab) -> None:
    assert lab.run("done", "--", "true").returncode == 0
    hold(lab, "held")
    assert [lock["name"] for lock in answer(lab, "status")["locks"]] == ["held"]
    found = {lock["name"]: lock for lock in answer(lab, "status", "--all")["locks"]}
    assert {name: lock["state"] for name, lock in found.items()} == {"done": "free", "held": "held"}
    assert found["done"]["holder"] is found["done"]["ttl_seconds"] is found["done"]["expires_in_seconds"] is None
    assert isinstance(found["done"]["token"], int)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], ["Nightly", "nightly/a", "nightly/b", "weekly"]),
        (["nightly*"], ["nightly/a", "nightly/b"]),
        (["*/a", "weekly"], ["nightly/a", "weekly"]),
        (["nightly"], []),
        (["night?y/[ab]"], ["nightly/a", "nightly/b"]),
    ],
)
def test_patterns(lab: Lab, patterns: list[str], expected: list[str]) -> None:
    for name in ("nightly/b", "nightly/a", "weekly", "Nightly"):
        hold(lab, name)
    assert [lock["name"] for lock in answer(lab, "status", *patterns)["locks"]] == expected


def test_inspect_quiet(lab: Lab) -> None:
    assert ask(lab, "inspect", "-q", "job").returncode == 1
    hold(lab, "job")
    done = ask(lab, "inspect", "-q", "job")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_lock_that_never_was_is_free_and_not_created(lab: Lab) -> None:
    found = answer(lab, "inspect", "never")
    assert (found["state"], found["token"], found["holder"], found["waiters"]) == ("free", None, None, [])
    assert answer(lab, "status", "--all")["locks"] == []
    assert not list(lab.folder.glob("locks/*"))


def test_late_holder_is_expiring(lab: Lab) -> None:
    """The renewer is stopped, so the lease is not renewed; with a long grace the command lives on for a while."""
    from processes import renewer_of

    run = hold(lab, "job", "--ttl", "6", "-k", "0.1")
    os.kill(renewer_of(run.pid), 19)
    wait_until(lambda: answer(lab, "inspect", "job")["state"] == "expiring", 8)
    assert "expiring" in ask(lab, "status").stdout


def test_in_a_pipe_each_lock_is_one_plain_line(lab: Lab) -> None:
    name = "a very long name " * 11
    hold(lab, name, "--label", "[red]no markup[/red] " + "x" * 200)
    lines = ask(lab, "status").stdout.splitlines()
    assert len(lines) == 2
    assert name.rstrip() in lines[1]
    assert "[red]no markup[/red]" in lines[1]
    assert "\033" not in "".join(lines)
    assert not any(line != line.rstrip() for line in lines)


def test_on_a_terminal_there_is_colour_and_no_control_of_others(lab: Lab) -> None:
    hold(lab, "job", "--label", "evil \033]0;title\a")
    with Terminal([DISTLOCK, "status"], {**lab.environment, "TERM": "xterm-256color"}) as terminal:
        shown = terminal.read_until("held")
        shown += terminal.read_until("\n")
    assert "\033[" in shown
    assert "\033]0" not in shown


def test_names_in_every_locale(lab: Lab) -> None:
    hold(lab, "резервная копия")
    for locale in ("C", "C.UTF-8"):
        lab.environment["LC_ALL"] = locale
        assert answer(lab, "inspect", "резервная копия")["state"] == "held"
        assert "резервная копия" in ask(lab, "status").stdout


@pytest.fixture
def thousand(lab: Lab) -> Iterator[Lab]:
    backend = open_backend(lab.backend, Environment(boottime, lambda: lab.folder))
    for number in range(1000):
        client = Client(f"{number:032x}", "host", 1, "user", "job", None, time.time())
        with backend.enqueue(Request(f"lock {number}", 600.0, client)) as ticket:
            assert ticket.poll()
    yield lab
    backend.close()


def test_a_thousand_locks_are_listed(thousand: Lab) -> None:
    assert len(answer(thousand, "status")["locks"]) == 1000


@pytest.mark.parametrize("command", [["status"], ["inspect", "job"], ["inspect", "-q", "job"]])
def test_unavailable_backend_is_one_line_and_69(lab: Lab, command: list[str]) -> None:
    assert lab.run("job", "--", "true").returncode == 0
    (path,) = (lab.folder / "locks").glob("*.lock/lock.db")
    path.write_bytes(b"garbage" * 1000)
    done = ask(lab, *command)
    assert (done.returncode, done.stderr.count("\n")) == (69, 1)
    assert str(path.parent) in done.stderr
    done = ask(lab, *command, "-b", "nonsense:")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)


def test_broken_pipe_is_quiet(lab: Lab) -> None:
    hold(lab, "job")
    script = f"{DISTLOCK} status --json | true"
    done = subprocess.run(["sh", "-c", script], env=lab.environment, capture_output=True, check=False)
    assert done.stderr == b""


def test_closed_stdout_is_an_error(lab: Lab) -> None:
    hold(lab, "job")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [DISTLOCK, "status"], env=lab.environment, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode != 0
    assert done.stderr.startswith(b"distlock: ")


@pytest.mark.parametrize("json_too", [[], ["--json"]], ids=["table", "json"])
def test_a_damaged_record_does_not_hide_the_others(lab: Lab, json_too: list[str]) -> None:
    for name in ("a", "b", "damaged"):
        hold(lab, name)
    path = next(Path(place) for place in answer(lab, "inspect", "damaged")["keys"])
    (path / "lock.db").unlink()
    done = ask(lab, "status", *json_too)
    assert done.returncode == 69
    assert done.stderr.startswith("distlock: ")
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr
    names = [lock["name"] for lock in json.loads(done.stdout)["locks"]] if json_too else done.stdout.split()
    assert {"a", "b"} <= set(names)
