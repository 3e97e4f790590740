"""A lease in a cluster whose master dies, is cut off or hands its slots over."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock.clock import boottime
from margins import Margin
from processes import Lab, Stamps, is_alive, wait_until
from redis_groups import Cluster, cluster

pytestmark = pytest.mark.faults

TTL = 12.0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path / "redis", replicas=1, node_timeout=1.0) as one:
        yield one


@pytest.fixture
def lab(tmp_path: Path, group: Cluster) -> Iterator[Lab]:
    made = Lab(tmp_path, group.url)
    yield made
    made.close()


def stamping(lab: Lab, name: str = "stamps", ttl: float = TTL) -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(name=name)
    return lab.start("--ttl", str(ttl), "job", "--", *command), stamps


@pytest.mark.parametrize("how", ["asked for", "killed", "frozen"])
def test_a_failover_is_followed(lab: Lab, group: Cluster, how: str, margin: Margin) -> None:
    """By the holder and by a waiter, when the replica knew of the grant."""
    run, stamps = stamping(lab)
    stamps.writer()
    next_run, next_stamps = stamping(lab, "next")
    master = group.of("job")
    replica = group.replicas[group.masters.index(master)]
    wait_until(lambda: master.command("ZCARD", "distlock:{lock:job}:queue") == 1)
    offset = int(master.command("INFO", "replication")["master_repl_offset"])
    wait_until(lambda: int(replica.command("INFO", "replication")["slave_repl_offset"]) >= offset)
    if how == "asked for":
        replica.command("CLUSTER", "FAILOVER")
    elif how == "killed":
        master.kill()
    else:
        master.freeze()
    wait_until(lambda: replica.command("ROLE")[0] == b"master", 20, "a promoted replica")
    until = boottime() + TTL + 1
    while boottime() < until:
        assert stamps.go_on()
        assert next_stamps.lines() == []
        assert next_run.poll() is None
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    next_stamps.writer()
    margin(stamps.last(), next_stamps.lines()[0][1])


def test_a_master_without_a_successor(lab: Lab, group: Cluster) -> None:
    """The command is dead before the key could expire; who wants the lock hears that it cannot be had."""
    run, stamps = stamping(lab, ttl=6.0)
    stamps.writer()
    master = group.of("job")
    group.replicas[group.masters.index(master)].kill()
    left = master.command("PTTL", "lock:job")
    expires = boottime() + left / 1000 + 6.0  # at most one renewal more
    master.freeze()
    expires = min(expires, boottime() + 6.0)
    _, stderr = run.communicate(timeout=12)
    assert run.returncode == 76
    assert b"lease lost" in stderr
    assert not is_alive(stamps.writer())
    assert stamps.last() < expires
    done = lab.run("-n", "job", "--", "true")
    assert done.returncode == 69
    assert done.stderr.count(b"\n") == 1
