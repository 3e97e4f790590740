"""status and inspect over etcd: the same keys as anywhere, foreign holders, waiters in order."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcd_fixtures import etcdctl_lock, queue_of
from etcd_servers import EtcdMember
from processes import DISTLOCK, Lab, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    with EtcdMember(tmp_path_factory.mktemp("etcd")).running() as one:
        yield one


@pytest.fixture
def lab(tmp_path: Path, server: EtcdMember) -> Iterator[Lab]:
    server.clear()
    made = Lab(tmp_path, server.url)
    yield made
    made.close()


def ask(lab: Lab, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([DISTLOCK, *arguments], env=lab.environment, capture_output=True, text=True, check=False)


def answer(lab: Lab, *arguments: str) -> dict[str, Any]:
    done = ask(lab, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_keys_are_those_of_any_engine(lab: Lab, server: EtcdMember) -> None:
    run = lab.start("--ttl", "20", "--label", "weekly", "job", "--", "sleep", "60")
    wait_until(lambda: answer(lab, "inspect", "job")["state"] == "held")
    found = answer(lab, "inspect", "job")
    assert list(found) == list(answer(lab, "inspect", "job", "-b", "local:"))
    assert queue_of("job") in found["keys"]
    assert (found["ttl_seconds"], found["holder"]["pid"], found["holder"]["label"]) == (20, run.pid, "weekly")
    listed = answer(lab, "status")
    assert listed["backend"] == server.url
    assert [list(lock) for lock in listed["locks"]] == [[key for key in found if key not in ("version", "keys")]]


def test_a_foreign_holder_and_those_who_wait_for_it(lab: Lab, server: EtcdMember) -> None:
    with etcdctl_lock(server, "/distlock/lock/job"):
        waiting = []
        for count in range(1, 4):
            waiting.append(lab.start("job", "--", "true").pid)
            wait_until(lambda: len(server.keys(queue_of("job"))) == count + 1)  # noqa: B023 - used at once
        found = answer(lab, "inspect", "job")
        assert (found["state"], found["holder"]) == ("held", None)
        assert [waiter["pid"] for waiter in found["waiters"]] == waiting
        assert 0 < found["expires_in_seconds"] <= 10
        assert "unknown" in ask(lab, "status").stdout


def test_patterns_and_exit_codes(lab: Lab, server: EtcdMember) -> None:
    server.ctl("put", f"{queue_of('held')}1", "")
    assert lab.run("done", "--", "true").returncode == 0

    def names(*words: str) -> list[str]:
        return [lock["name"] for lock in answer(lab, "status", *words)["locks"]]

    assert names() == names("h*") == names("held") == ["held"]
    assert names("d*") == []
    assert names("--all") == ["done", "held"]
    assert [ask(lab, "inspect", "-q", name).returncode for name in ("held", "done", "never seen")] == [0, 1, 1]


def test_a_server_that_is_not_there_is_one_line(lab: Lab, tmp_path: Path) -> None:
    gone = EtcdMember(tmp_path / "gone")
    for words in (["status"], ["inspect", "job"], ["inspect", "-q", "job"]):
        done = ask(lab, *words, "-b", f"etcds://{gone.place}")
        assert (done.returncode, done.stdout) == (69, "")
        assert done.stderr == f"distlock: {gone.place} is not reached: Connection refused\n"
