"""`distlock run` and its companions over ZooKeeper: what starts, what does not, and what is said."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import zookeeper_fixtures
from processes import DISTLOCK, Lab, wait_until
from servers import HOST, free_port
from zookeeper_fixtures import folder, queue
from zookeeper_servers import ZooKeeperServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """Sessions of 4 to 40 s, as ZooKeeper has them if nobody says otherwise."""
    settings = {"minSessionTimeout": "4000", "maxSessionTimeout": "40000"}
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), settings).running() as one:
        yield one


zk = zookeeper_fixtures.zk


@pytest.fixture
def lab(tmp_path: Path, server: ZooKeeperServer) -> Iterator[Lab]:
    made = Lab(tmp_path, server.url)
    yield made
    made.close()


def distlock(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DISTLOCK, *words], capture_output=True, text=True, check=False, env=lab.environment, timeout=30
    )


# --- the TTL that the server grants -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "granted", "said"),
    [
        ("30", "30", ""),
        ("90", "40", "distlock: the backend grants a lease of 40s instead of 1m30s\n"),
        ("3", "4", "distlock: the backend grants a lease of 4s instead of 3s\n"),
    ],
)
def test_a_clipped_ttl_is_told_with_v_only(lab: Lab, asked: str, granted: str, said: str) -> None:
    for options, expected in (((), ""), (("-v",), said)):
        done = lab.run(*options, "--ttl", asked, "ttl", "--", "sh", "-c", "echo $DISTLOCK_TTL; cat $DISTLOCK_LEASE")
        assert done.returncode == 0
        ttl, _, lease = done.stdout.decode().partition("\n")
        assert ttl == granted
        assert json.loads(lease)["ttl_seconds"] == float(granted)
        assert done.stderr.decode() == expected


def test_a_grace_that_the_servers_limit_does_not_leave_is_an_error(lab: Lab, zk: KazooClient) -> None:
    done = lab.run("--ttl", "90", "-k", "20", "grace", "--", "touch", "started")
    assert done.returncode == 78
    said = done.stderr.decode()
    assert "a lease of 40s instead of 1m30s" in said
    assert "give --kill-after 13.333s or less" in said
    assert said.count("\n") == 1
    assert not (lab.folder / "started").exists()
    assert queue(zk, "grace") == []


# --- the queue --------------------------------------------------------------------------------------------------------


def held(lab: Lab, name: str, *options: str) -> subprocess.Popen[bytes]:
    run = lab.start(*options, name, "--", "sh", "-c", "echo started; exec sleep 60")
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    return run


def test_a_conflict_and_a_wait_in_vain_leave_nothing(lab: Lab, server: ZooKeeperServer, zk: KazooClient) -> None:
    run = held(lab, "busy", "--label", "a backup")
    sessions = server.sessions()
    silent = lab.run("-n", "busy", "--", "touch", "started")
    assert (silent.returncode, silent.stderr) == (75, b"")
    start = time.monotonic()
    told = lab.run("-w", "0.5", "busy", "--", "touch", "started")
    assert told.returncode == 75
    assert 0.5 <= time.monotonic() - start < 2.0
    assert f":{run.pid} (".encode() in told.stderr
    assert b"'a backup'" in told.stderr
    assert not (lab.folder / "started").exists()
    assert len(queue(zk, "busy")) == 1
    assert server.sessions() == sessions
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    assert queue(zk, "busy") == []
    assert len(server.sessions()) == len(sessions) - 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_waiting_at_once(lab: Lab, zk: KazooClient, number: signal.Signals) -> None:
    name = f"signal-{number.name}"
    run = held(lab, name)
    waiter = lab.start(name, "--", "touch", "started")
    wait_until(lambda: len(queue(zk, name)) == 2)
    waiter.send_signal(number)
    start = time.monotonic()
    assert waiter.wait(5) == -number
    assert time.monotonic() - start < 1.0
    assert len(queue(zk, name)) == 1
    assert not (lab.folder / "started").exists()
    run.terminate()
    run.wait(5)


def test_a_killed_waiter_makes_room_in_time(lab: Lab, zk: KazooClient) -> None:
    """However long its TTL is."""
    run = held(lab, "killed")
    waiter = lab.start("--ttl", "40", "killed", "--", "touch", "started")
    wait_until(lambda: len(queue(zk, "killed")) == 2)
    waiter.kill()  # its renewer leaves the queue
    wait_until(lambda: len(queue(zk, "killed")) == 1, 2.0)
    run.terminate()
    assert lab.run("-w", "2", "killed", "--", "true").returncode == 0


def test_a_run_inside_of_the_same_lock_is_refused(lab: Lab) -> None:
    done = lab.run("nested", "--", DISTLOCK, "run", "nested", "--", "true")
    assert done.returncode == 75
    assert b"it would wait for itself" in done.stderr


# --- servers that are not there ---------------------------------------------------------------------------------------


def test_nobody_there(lab: Lab) -> None:
    place = f"{HOST}:{free_port()}"
    start = time.monotonic()
    done = lab.run("-b", f"zookeeper://{place}", "-n", "p", "--", "touch", "started")
    assert time.monotonic() - start < 8.0  # not the ten seconds of a first contact
    assert done.returncode == 69
    assert done.stderr.decode() == f"distlock: {place} is not reached: Connection refused\n"
    assert not (lab.folder / "started").exists()


def test_a_server_that_comes_within_the_first_seconds_is_waited_for(lab: Lab, tmp_path: Path) -> None:
    late = ZooKeeperServer(tmp_path / "late")
    run = lab.start("-b", late.url, "p", "--", "echo", "ran")
    try:
        late.start(ready=False)
        out, _ = run.communicate(timeout=15)
        assert (run.returncode, out) == (0, b"ran\n")
    finally:
        late.kill()


def test_an_unknown_layout_is_69(lab: Lab, zk: KazooClient) -> None:
    zk.create(folder("layout"), b'{"version":9}', makepath=True)
    start = time.monotonic()
    done = lab.run("layout", "--", "touch", "started")
    assert time.monotonic() - start < 8.0  # not the ten seconds of a first contact
    assert done.returncode == 69
    assert b"in a layout that this program does not know" in done.stderr
    assert not (lab.folder / "started").exists()
    zk.delete(folder("layout"))


def test_a_wrong_url_is_78_and_is_not_shown(lab: Lab) -> None:
    done = lab.run("-b", "zookeeper://sam:s3cret@h:x", "p", "--", "touch", "started")
    assert done.returncode == 78
    assert b"s3cret" not in done.stderr


def test_correctness_is_what_it_is_for(lab: Lab) -> None:
    assert lab.run("--require", "correctness", "required", "--", "true").returncode == 0


# --- status and inspect -----------------------------------------------------------------------------------------------


def test_status_and_inspect(lab: Lab) -> None:
    run = held(lab, "shown/ж", "--ttl", "20", "--label", "weekly")
    waiter = lab.start("--ttl", "20", "shown/ж", "--", "true")
    wait_until(lambda: json.loads(distlock(lab, "inspect", "shown/ж", "--json").stdout)["waiters"])
    shown = json.loads(distlock(lab, "inspect", "shown/ж", "--json").stdout)
    assert (shown["state"], shown["ttl_seconds"], shown["keys"]) == ("held", 20.0, ["/distlock/lock/shown%2F%D0%B6"])
    assert 13 < shown["expires_in_seconds"] <= 20
    assert (shown["holder"]["pid"], shown["holder"]["label"]) == (run.pid, "weekly")
    assert [one["pid"] for one in shown["waiters"]] == [waiter.pid]
    (listed,) = json.loads(distlock(lab, "status", "shown*", "--json").stdout)["locks"]
    assert listed["token"] == shown["token"]
    assert distlock(lab, "inspect", "-q", "shown/ж").returncode == 0
    run.terminate()
    waiter.wait(5)
    assert distlock(lab, "inspect", "-q", "shown/ж").returncode == 1
    (free,) = json.loads(distlock(lab, "status", "--all", "shown*", "--json").stdout)["locks"]
    assert (free["state"], free["holder"]) == ("free", None)
    assert free["token"] > shown["token"]


def test_a_password_is_in_nobodys_words(lab: Lab, server: ZooKeeperServer) -> None:
    url = f"zookeeper://sam:s3cret@{server.place}/login"
    assert lab.run("-b", url, "p", "--", "true").returncode == 0
    for words in (("status", "--all", "-b", url), ("status", "--json", "-b", url), ("inspect", "p", "-b", url)):
        done = distlock(lab, *words)
        assert done.returncode == 0
        assert "s3cret" not in done.stdout + done.stderr
