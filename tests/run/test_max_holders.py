"""``--max-holders N``: N at once, each with an index of its own, and nobody who says another number."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import Any

import pytest

from processes import DISTLOCK, Lab, is_alive, renewer_of, wait_until
from redis_fixtures import lab as redis_lab
from redis_fixtures import server
from servers import RedisServer

__all__ = ["redis_lab", "server"]

SAY_INDEX = 'echo "${DISTLOCK_HOLDER_INDEX-none}"; exec sleep 60'


class Holder:
    """A run that holds one place, and the index that its command was told."""

    def __init__(self, lab: Lab, *options: str, command: str = SAY_INDEX) -> None:
        self.run = lab.start(*options, lab.job, "--", "sh", "-c", command)
        self._told: str | None = None

    @property
    def index(self) -> str:
        """Waits for it."""
        if self._told is None:
            assert self.run.stdout
            self._told = self.run.stdout.readline().decode().strip()
            assert self._told, self.run.communicate()
        return self._told

    def end(self) -> None:
        self.run.terminate()
        assert self.run.wait(10) == -signal.SIGTERM


def hold(lab: Lab, number: int, *options: str, of: int = 3) -> list[Holder]:
    """One after the other."""
    holders = []
    for index in range(number):
        holders.append(Holder(lab, "--max-holders", str(of), *options))
        assert holders[-1].index == str(index)
    return holders


def ask(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DISTLOCK, *arguments],
        env=lab.environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=lab.folder,
        stdin=subprocess.DEVNULL,
    )


def inspected(lab: Lab) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(lab, "inspect", lab.job, "--json").stdout)
    return found


def refused(lab: Lab, *options: str) -> str:
    done = lab.run(*options, lab.job, "--", "true")
    assert done.returncode == 78, done
    (line,) = done.stderr.decode().splitlines()
    return line


def test_so_many_at_once_and_the_next_one_gets_the_place_that_is_freed(each_lab: Lab) -> None:
    holders = hold(each_lab, 3)
    done = each_lab.run("-n", "-v", "--max-holders", "3", each_lab.job, "--", "true")
    assert done.returncode == 75
    assert f"'{each_lab.job}': 3 of 3 hold it: " in done.stderr.decode()
    waiter = Holder(each_lab, "--max-holders", "3")
    wait_until(lambda: inspected(each_lab)["waiters"])
    holders[1].end()
    assert waiter.index == "1"
    for one in (holders[0], holders[2], waiter):
        assert one.run.poll() is None
        one.end()
    assert ask(each_lab, "inspect", "-q", each_lab.job).returncode == 1


def test_the_command_knows_of_an_index_if_it_was_asked_for(lab: Lab) -> None:
    outer = {"DISTLOCK_HOLDER_INDEX": "7"}
    script = ["job", "--", "sh", "-c", 'echo "${DISTLOCK_HOLDER_INDEX-none}"']
    assert lab.run(*script, environment=outer).stdout == b"none\n"
    assert lab.run("--max-holders", "1", *script, environment=outer).stdout == b"0\n"
    (lab.folder / "config.toml").write_text('[locks."j*"]\nmax-holders = 5\n')
    assert lab.run("--config", "config.toml", *script, environment=outer).stdout == b"0\n"


def test_one_holder_is_the_plain_lock(each_lab: Lab) -> None:
    one = Holder(each_lab)
    assert one.index == "none"
    assert each_lab.run("-n", "--max-holders", "1", each_lab.job, "--", "true").returncode == 75
    assert inspected(each_lab)["max_holders"] == 1
    one.end()


@pytest.mark.parametrize(("theirs", "ours"), [(3, None), (None, 3)])
def test_another_number_is_refused(each_lab: Lab, theirs: int | None, ours: int | None) -> None:
    """Not a conflict, whatever the wait: nobody's place will ever do."""
    one = Holder(each_lab, *(["--max-holders", str(theirs)] if theirs else []))
    assert one.index == ("0" if theirs else "none")
    words = ["--max-holders", str(ours)] if ours else []
    for wait in (["-n", "-E", "5"], []):
        assert f"'{each_lab.job}' is held with" in refused(each_lab, *wait, *words)
    one.end()
    assert each_lab.run("-n", *words, each_lab.job, "--", "true").returncode == 0


def test_another_number_while_waiting(redis_lab: Lab, server: RedisServer) -> None:
    """Behind a holder that is not a distlock both wait; the second finds the lock held by the first."""
    server.command("SET", "lock:job", "x", "PX", 60000)
    first = Holder(redis_lab, "--max-holders", "2")
    wait_until(lambda: server.command("ZCARD", "distlock:{lock:job}:queue") == 1)
    second = redis_lab.start("-w", "60", "-E", "5", "job", "--", "echo", "ran")
    wait_until(lambda: server.command("ZCARD", "distlock:{lock:job}:queue") == 2)
    server.command("DEL", "lock:job")
    assert first.index == "0"
    out, err = second.communicate(timeout=10)
    assert (second.returncode, out) == (78, b"")
    assert re.fullmatch(rb"distlock: 'job' is held with --max-holders 2: .*\n", err)
    assert server.command("ZCARD", "distlock:{lock:job}:queue") == 0


@pytest.mark.parametrize("ours", ["", "--max-holders 3"])
def test_a_nested_run_is_refused_whatever_is_free(each_lab: Lab, ours: str) -> None:
    inner = f"{DISTLOCK} run {ours} {each_lab.job} -- echo ran"
    done = each_lab.run("--max-holders", "3", each_lab.job, "--", "sh", "-c", inner)
    assert (done.returncode, done.stdout) == (75, b"")
    assert b"is held by the run that this one is inside of" in done.stderr


def test_operators_see_every_holder(each_lab: Lab) -> None:
    lab = each_lab
    holders = hold(lab, 2, "--label", "the_label")
    waiting = inspected(lab)["waiters"]
    assert waiting == []
    found = inspected(lab)
    assert (found["max_holders"], found["state"]) == (3, "held")
    assert [one["holder_index"] for one in found["holders"]] == [0, 1]
    assert [one["holder"]["pid"] for one in found["holders"]] == [one.run.pid for one in holders]
    assert (found["holder"], found["token"]) == (found["holders"][0]["holder"], found["holders"][0]["token"])
    (listed,) = [lock for lock in json.loads(ask(lab, "status", "--json").stdout)["locks"] if lock["name"] == lab.job]
    assert [one["token"] for one in listed["holders"]] == [one["token"] for one in found["holders"]]
    rows = [line.split() for line in ask(lab, "status", lab.job).stdout.splitlines()[1:]]
    assert [row[:6] for row in rows] == [[lab.job, "held", str(index), "2", "of", "3"] for index in range(2)]
    assert [row[6].partition(":")[2] for row in rows] == [str(one.run.pid) for one in holders]
    text = ask(lab, "inspect", lab.job).stdout
    assert re.search(r"^holders +2 of 3$", text, re.MULTILINE)
    for one in holders:
        assert f":{one.run.pid} (" in text
    assert ask(lab, "inspect", "-q", lab.job).returncode == 0


def test_one_of_them_is_taken_away(each_lab: Lab) -> None:
    """The others go on, and it is this one's end that is waited for."""
    lab = each_lab
    holders = hold(lab, 3, "--ttl", "6")
    meant = inspected(lab)["holders"][1]
    named = ["--owner", meant["holder"]["owner"]] if meant["token"] is None else ["--token", str(meant["token"])]
    done = ask(lab, "release", lab.job, *named, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"freed after .*: the command of its holder was stopped, and it was given back\n", done.stdout)
    _, stderr = holders[1].run.communicate(timeout=10)
    assert holders[1].run.returncode == 76
    assert b"an operator released it" in stderr
    assert [one["holder_index"] for one in inspected(lab)["holders"]] == [0, 2]
    done = ask(lab, "release", lab.job, *named, "--yes")
    assert done.returncode == 65
    assert "none of its holders has " in done.stderr
    assert "2 of 3 hold it" in done.stderr
    for one in (holders[0], holders[2]):
        one.end()


def test_a_lost_lease_ends_its_own_run_alone(each_lab: Lab) -> None:
    holders = hold(each_lab, 2, "--ttl", "3")
    os.kill(renewer_of(holders[0].run.pid), signal.SIGKILL)
    assert holders[0].run.wait(10) == 76
    again = Holder(each_lab, "--max-holders", "3", "--ttl", "3")
    assert again.index in ("0", "2")
    assert is_alive(holders[1].run.pid)
    for one in (holders[1], again):
        one.end()


def test_each_can_check_its_lease(each_lab: Lab) -> None:
    """Also by asking the backend, which has to find the right one of them."""
    script = f'{DISTLOCK} check --verify; echo "$?"; exec sleep 60'
    for _ in range(3):
        assert Holder(each_lab, "--max-holders", "3", command=script).index == "0"


def test_holders_do_not_fence_each_other_out(each_lab: Lab) -> None:
    """The later one has the greater token, and writes first."""
    lab = each_lab
    gate = lab.folder / "gate"
    fence = f"{DISTLOCK} fence {lab.job} --store register"
    first = Holder(
        lab, "--max-holders", "2", command=f"echo there; until [ -e {gate} ]; do sleep 0.02; done; {fence}; echo $?"
    )
    assert first.index == "there"
    second = lab.run("--max-holders", "2", lab.job, "--", "sh", "-c", f"{fence}; echo $? $DISTLOCK_FENCING_TOKEN")
    gate.touch()
    out, _ = first.run.communicate(timeout=10)
    code, *token = second.stdout.decode().split()
    if not token:
        assert code == "2", "an engine without tokens has nothing to fence with"
        return
    assert (code, out) == ("0", b"0\n")
    registers = sorted(path.name for path in lab.folder.glob("register*"))
    assert registers == ["register", "register.1"]
    assert (
        ask(lab, "fence", lab.job, "--store", "register", "--reset", "--yes", "--max-holders", "1000").returncode == 0
    )
    for index in ("0", "1"):
        lab.environment["DISTLOCK_HOLDER_INDEX"] = index
        assert ask(lab, "fence", lab.job, "--store", "register", "--token", "1").returncode == 0
    assert sorted(path.name for path in lab.folder.glob("register*")) == registers


def test_a_place_is_kept(each_lab: Lab) -> None:
    """Its own, for as long as it asked for; it is nobody's, and nobody's else."""
    lab = each_lab
    keeps = not lab.backend.startswith(("zookeeper:", "postgresql+advisory:"))
    kept = lab.start("--max-holders", "2", "--min-hold", "60" if keeps else "5", lab.job, "--", "true")
    if keeps:
        assert kept.wait(20) == 0
    wait_until(lambda: inspected(lab)["holders"])
    other = Holder(lab, "--max-holders", "2")
    assert other.index == "1"
    assert [one["state"] for one in inspected(lab)["holders"]] == ["kept" if keeps else "held", "held"]
    assert lab.run("-n", "--max-holders", "2", lab.job, "--", "true").returncode == 75
    other.end()
    assert refused(lab, "-n").startswith(f"distlock: '{lab.job}' is held with --max-holders 2")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--max-holders", "0"], "0"),
        (["--max-holders", "1001"], "1001"),
        (["--max-holders", "x"], "x"),
        (["--max-holders", "2", "--once", "k"], "--once and --max-holders 2 contradict each other"),
        (["--max-holders", "2", "--min-interval", "1h"], "--min-interval and --max-holders 2 contradict"),
        (["--max-holders", "2", "--mark", "start"], "--mark and --max-holders 2 contradict"),
    ],
)
def test_what_cannot_be_meant(lab: Lab, options: list[str], said: str) -> None:
    done = lab.run(*options, "job", "--", "true")
    assert (done.returncode, done.stdout) == (2, b"")
    (line,) = done.stderr.decode().splitlines()
    assert said in line


@pytest.mark.parametrize(
    ("file", "options", "code"),
    [
        ("max-holders = 2", ["--once", "k"], 2),
        ("once = 'k'", ["--max-holders", "2"], 2),
        ("max-holders = 2\nmin-interval = '1h'", [], 78),
        ("max-holders = 0", [], 78),
        ("max-holders = 2", ["--max-holders", "1", "--once", "k"], 0),
    ],
)
def test_what_a_configuration_cannot_mean(lab: Lab, file: str, options: list[str], code: int) -> None:
    (lab.folder / "config.toml").write_text(f"[defaults]\n{file}\n")
    done = lab.run("--config", "config.toml", *options, "job", "--", "true")
    assert done.returncode == code, done
    assert not done.stderr or b"max-holders" in done.stderr


def test_what_is_told_of_it(lab: Lab) -> None:
    log = lab.folder / "log"
    assert (
        lab.run("--max-holders", "3", "--log-to", str(log), "--log-format", "json", "job", "--", "true").returncode == 0
    )
    assert lab.run("job", "--", "true").returncode == 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert [event.get("holder_index") for event in events if event["event"] == "granted"] == [0]
    runs = json.loads(ask(lab, "history", "--json").stdout)["runs"]
    assert [run["holder_index"] for run in runs] == [0, None]


def test_without_a_lock_there_is_no_index(lab: Lab) -> None:
    outer = {"DISTLOCK_HOLDER_INDEX": "7"}
    script = ["--max-holders", "2", "job", "--", "sh", "-c", 'echo "${DISTLOCK_HOLDER_INDEX-none}"']
    done = lab.run("-n", "-b", "redis://127.0.0.1:1", "--fail-open", *script, environment=outer)
    assert (done.returncode, done.stdout) == (0, b"none\n")
