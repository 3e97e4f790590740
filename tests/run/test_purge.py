"""``distlock purge``: what it forgets, what it keeps, and whom it asks."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from processes import DISTLOCK, Lab
from terminals import Terminal

KEYS = ["version", "backend", "unused_for_seconds", "fences", "purged", "lease_files_removed"]


def ask(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DISTLOCK, *words], env=lab.environment, capture_output=True, text=True, check=False, cwd=lab.folder
    )


def known(lab: Lab) -> list[str]:
    locks = json.loads(ask(lab, "status", "--all", "--json", f"{lab.job}*").stdout)["locks"]
    return [lock["name"] for lock in locks]


def used(lab: Lab, *names: str, command: str = "false") -> None:
    for name in names:
        assert lab.run(name, "--", command).returncode in (0, 1)


def purged(lab: Lab, *words: str) -> dict[str, Any]:
    done = ask(lab, "purge", "--yes", "--json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_locks_that_nobody_uses(each_lab: Lab) -> None:
    """Those that are held, have succeeded, or were used lately stay, and so do those that do not match."""
    lab = each_lab
    job = lab.job
    used(lab, f"{job} a", f"{job} b", f"{job}-other")
    used(lab, f"{job} good", command="true")
    held = lab.start(f"{job} held", "--", "sh", "-c", "echo started; exec sleep 60")
    assert held.stdout
    held.stdout.readline()
    before = known(lab)
    assert purged(lab, f"{job}*")["purged"] == [], "used lately"
    assert known(lab) == before
    done = ask(lab, "purge", "--yes", "--unused-for", "0", f"{job} *")
    expected = [name for name in (f"{job} a", f"{job} b") if name in before]
    assert (done.returncode, sorted(done.stdout.splitlines()), done.stderr) == (0, expected, "")
    assert known(lab) == [name for name in before if name not in expected]
    token = json.loads(ask(lab, "inspect", "--json", f"{job} held").stdout)["token"]
    used(lab, f"{job} a")
    if token is not None:
        assert json.loads(ask(lab, "inspect", "--json", f"{job} a").stdout)["token"] > 0


def test_keys_of_json(lab: Lab) -> None:
    used(lab, "a", "b")
    found = purged(lab, "--unused-for", "0")
    assert list(found) == KEYS
    assert sorted(found["purged"]) == ["a", "b"]
    assert found | {"purged": []} == {
        "version": 1,
        "backend": lab.backend,
        "unused_for_seconds": 0.0,
        "fences": False,
        "purged": [],
        "lease_files_removed": 0,
    }


def test_nobody_is_asked_without_a_terminal(lab: Lab) -> None:
    used(lab, "job")
    done = ask(lab, "purge", "--unused-for", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    assert known(lab) == ["job"]


@pytest.mark.parametrize("answer", ["n", "y"])
def test_on_a_terminal_it_asks_with_how_many_it_is_about(lab: Lab, answer: str) -> None:
    used(lab, "job a", "job b", "x")
    used(lab, "job good", command="true")
    with Terminal([DISTLOCK, "purge", "--unused-for", "0", "job*"], lab.environment) as terminal:
        terminal.read_until("3 locks match, 2 may go")
        terminal.read_until("?")
        terminal.press(f"{answer}\n")
        terminal.read_until("2 locks forgotten" if answer == "y" else "nothing was done")
    assert known(lab) == (["job good"] if answer == "y" else ["job a", "job b", "job good"])


@pytest.mark.parametrize(
    ("words", "told"),
    [(["--fences"], "PATTERN"), (["--unused-for", "never"], "--unused-for: 'never'"), (["--dry"], "--dry")],
)
def test_usage(lab: Lab, words: list[str], told: str) -> None:
    done = ask(lab, "purge", "--yes", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert told in done.stderr


def test_lease_files_that_killed_runs_left(lab: Lab) -> None:
    """Those of this user, a day past their deadline; not with a PATTERN, which is about locks."""
    used(lab, "job")
    leases = lab.folder / "state" / "leases"
    leases.mkdir(exist_ok=True)
    old, young = leases / "old.json", leases / "young.json"
    for path, age in ((old, 2 * 86400.0), (young, 60.0)):
        path.write_text("{}")
        os.utime(path, (time.time() - age,) * 2)
    assert purged(lab, "j*")["lease_files_removed"] == 0
    assert purged(lab)["lease_files_removed"] == 1
    assert (old.exists(), young.exists()) == (False, True)


def test_fence_registers_of_a_backend(each_lab: Lab) -> None:
    """Stale tokens pass afterwards, so it is asked for by name."""
    lab = each_lab
    fence = ["fence", lab.job, "--store", lab.backend, "--token"]
    if ask(lab, *fence, "9").returncode != 0:  # it keeps none
        assert purged(lab, "--fences", "--unused-for", "0", f"{lab.job}*")["purged"] == []
        return
    assert purged(lab, "--unused-for", "0", f"{lab.job}*")["purged"] == []
    assert ask(lab, *fence, "8").returncode == 65
    found = purged(lab, "--fences", "--unused-for", "0", f"{lab.job}*")
    assert (found["purged"], found["fences"]) == ([lab.job], True)
    assert ask(lab, *fence, "1").returncode == 0


def test_what_was_forgotten_is_told_though_the_backend_fails(lab: Lab) -> None:
    """A damaged lock is none to forget; those that were met before it are gone, and are told."""
    used(lab, "job", "other")
    (place,) = json.loads(ask(lab, "inspect", "--json", "job").stdout)["keys"]
    damaged = Path(place) / "lock.db"
    damaged.write_bytes(b"garbage" * 1000)
    done = ask(lab, "purge", "--yes", "--json", "--unused-for", "0")
    found = json.loads(done.stdout)["purged"]
    assert (done.returncode, found) in ((69, []), (69, ["other"]), (0, ["other"]))
    assert damaged.exists()
    assert bool(found) is (json.loads(ask(lab, "inspect", "other", "--json").stdout)["token"] is None)
