"""``--fail-open``: a backend that is not reached ends nothing, and one that answers counts as ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import redis_fixtures
from distlock.clock import boottime
from processes import DISTLOCK, Lab, is_alive, renewer_of, wait_until
from proxy import Proxy
from servers import RedisServer, free_port

pytestmark = pytest.mark.faults

TTL = 3.0


server = redis_fixtures.server
proxy = redis_fixtures.proxy
lab = redis_fixtures.lab_behind_proxy


def last_run(lab: Lab) -> dict[str, Any]:
    done = subprocess.run([DISTLOCK, "history", "--json"], env=lab.environment, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)["runs"][-1]
    return found


@pytest.mark.parametrize("quiet", [[], ["-q"]], ids=["", "-q"])
def test_nobody_there_at_the_start(lab: Lab, quiet: list[str]) -> None:
    """Without a lock, without a token, and it says so; the code is the command's."""
    script = 'echo "${DISTLOCK_FENCING_TOKEN-none} ${DISTLOCK_LEASE-none} ${DISTLOCK_HOLDER_INDEX-none}"; exit 5'
    outer = {
        "DISTLOCK_FENCING_TOKEN": "7",
        "DISTLOCK_LEASE": "x",
        "DISTLOCK_HOLDER_INDEX": "1",
        "DISTLOCK_BACKEND": f"redis://127.0.0.1:{free_port()}",
    }
    done = lab.run(
        "-n", *quiet, "--fail-open", "--max-holders", "3", "job", "--", "sh", "-c", script, environment=outer
    )
    assert (done.returncode, done.stdout) == (5, b"none none none\n")
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("distlock: 'job': COMMAND runs without a lock and without a token: ")
    run = last_run(lab)
    assert (run["outcome"], run["exit_code"], run["granted_at"], run["token"]) == ("unlocked", 5, None, None)
    assert "Connection refused" in run["reason"]


def test_a_conflict_is_no_missing_answer(lab: Lab, server: RedisServer) -> None:
    server.command("SET", "lock:job", "x", "PX", 60000)
    assert lab.run("-n", "--fail-open", "job", "--", "true").returncode == 75
    server.command("CONFIG", "SET", "requirepass", "secret")
    assert lab.run("-n", "--fail-open", "other", "--", "true").returncode == 77


def test_a_dead_renewer_leaves_the_truth_to_be_told(lab: Lab) -> None:
    away = ["-n", "-b", f"redis://127.0.0.1:{free_port()}", "--fail-open", "job"]
    run = lab.start(*away, "--", "sh", "-c", "echo started; read line < fifo")
    fifo = lab.folder / "fifo"
    os.mkfifo(fifo)
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    os.kill(renewer_of(run.pid), signal.SIGKILL)
    fifo.write_text("go on\n")
    assert run.wait(10) == 0
    found = last_run(lab)
    assert (found["outcome"], found["exit_code"], found["granted_at"]) == ("unlocked", 0, None)


@pytest.mark.parametrize("cut", ["silent", "refused"])
def test_lost_on_the_way_it_goes_on_and_says_so(lab: Lab, proxy: Proxy, cut: str) -> None:
    command, stamps = lab.stamper()
    run = lab.start("--fail-open", "--ttl", str(TTL), "job", "--", *command)
    stamps.writer()
    if cut == "silent":
        proxy.black_hole()
    else:
        proxy.refuse()
    until = boottime() + 2 * TTL
    while boottime() < until:
        assert stamps.go_on()
    run.terminate()
    _, stderr = run.communicate(timeout=10)
    assert run.returncode == -signal.SIGTERM
    assert "COMMAND goes on without it" in stderr.decode()
    assert "lease lost" not in stderr.decode()
    run_of_it = last_run(lab)
    assert (run_of_it["outcome"], run_of_it["exit_code"]) == ("unlocked", 128 + signal.SIGTERM)
    assert run_of_it["token"] is not None
    assert run_of_it["reason"]


def test_a_lock_that_somebody_else_has_by_then_ends_the_command(lab: Lab, server: RedisServer, proxy: Proxy) -> None:
    command, stamps = lab.stamper("deaf daemon")
    run = lab.start("--fail-open", "--ttl", str(TTL), "job", "--", *command)
    child = stamps.writer()
    proxy.black_hole()
    wait_until(lambda: server.command("EXISTS", "lock:job") == 0, TTL + 2)
    server.command("SET", "lock:job", "x", "PX", 60000)
    assert is_alive(child)
    proxy.let_pass()
    _, stderr = run.communicate(timeout=TTL + 5)
    assert run.returncode == 76
    assert "lease lost" in stderr.decode()
    assert not is_alive(child)


def test_a_lock_that_is_nobodys_by_then_ends_nothing(lab: Lab, server: RedisServer, proxy: Proxy) -> None:
    command, stamps = lab.stamper()
    run = lab.start("--fail-open", "--ttl", str(TTL), "job", "--", *command)
    stamps.writer()
    proxy.black_hole()
    wait_until(lambda: server.command("EXISTS", "lock:job") == 0, TTL + 2)
    proxy.let_pass()
    until = boottime() + 2 * TTL
    while boottime() < until:
        assert stamps.go_on()
    run.kill()
    assert run.wait(5) < 0
    wait_until(lambda: not stamps.go_on(), 5)


def test_a_damaged_lock_is_no_missing_backend(tmp_path: Path) -> None:
    lab = Lab(tmp_path, f"local://{tmp_path / 'locks'}")
    try:
        assert lab.run("job", "--", "true").returncode == 0
        (database,) = (tmp_path / "locks").rglob("lock.db")
        database.write_bytes(os.urandom(8192))
        assert lab.run("-n", "--fail-open", "job", "--", "true").returncode == 69
    finally:
        lab.close()


def test_lost_while_waiting_it_is_not_waited_for_ever(lab: Lab, server: RedisServer) -> None:
    server.command("SET", "lock:job", "x", "PX", 60000)
    run = lab.start("--fail-open", "job", "--", "echo", "ran")
    wait_until(lambda: server.command("ZCARD", "distlock:{lock:job}:queue") == 1)
    server.kill()
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out) == (0, b"ran\n")
    assert last_run(lab)["outcome"] == "unlocked"
    assert b"without a lock" in err
