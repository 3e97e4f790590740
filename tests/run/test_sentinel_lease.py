"""A lease on a Redis that is watched by sentinels, and what a failover does to it. The last one shows the double grant
that README speaks of, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock.clock import boottime
from distlock.deadline import default_grace
from margins import Margin
from processes import Lab, Stamps, is_alive, wait_until
from redis_fixtures import token_key
from redis_groups import SERVICE, Watched, watched
from servers import HOST, RedisServer, free_port

pytestmark = pytest.mark.faults

TTL = 9.0


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Watched]:
    with watched(tmp_path / "redis") as one:
        yield one


@pytest.fixture
def lab(tmp_path: Path, group: Watched) -> Iterator[Lab]:
    made = Lab(tmp_path, group.url)
    yield made
    made.close()


def stamping(lab: Lab, name: str = "stamps", wait: bool = False) -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(name=name)
    run = lab.start("--ttl", str(TTL), "job", "--", *command)
    if not wait:
        stamps.writer()
    return run, stamps


def kept_and_handed_over(
    run: subprocess.Popen[bytes], stamps: Stamps, next_run: subprocess.Popen[bytes], margin: Margin
) -> None:
    """The first goes on for longer than its TTL; the second comes after it."""
    until = boottime() + TTL + 1
    while boottime() < until:
        assert stamps.go_on()
        assert next_run.poll() is None
    next_stamps = Stamps(stamps.path.with_name("next"))
    assert next_stamps.lines() == []
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    next_stamps.writer()
    margin(stamps.last(), next_stamps.lines()[0][1])


@pytest.mark.parametrize("how", ["asked for", "killed", "frozen"])
def test_a_failover_is_followed(lab: Lab, group: Watched, how: str, margin: Margin) -> None:
    """By the holder's renewals, and by a waiter, when the replica knew of the grant."""
    run, stamps = stamping(lab)
    waiter, _ = stamping(lab, "next", wait=True)
    master = group.master()
    wait_until(lambda: master.command("ZCARD", "distlock:{lock:job}:queue") == 1)
    group.replicated()
    if how == "asked for":
        group.fail_over()
    else:
        master.kill() if how == "killed" else master.freeze()
        # Whoever is asked: all sentinels agree.
        wait_until(lambda: group.master() is not master, 20, "another master")
    kept_and_handed_over(run, stamps, waiter, margin)


def test_sentinels_that_die_one_by_one(lab: Lab, group: Watched) -> None:
    """Without any, the lease goes on at the master that is known."""
    run, stamps = stamping(lab)
    for sentinel in group.sentinels:
        assert lab.run("other", "--", "true").returncode == 0
        sentinel.kill()
    until = boottime() + TTL
    while boottime() < until:
        assert stamps.go_on()
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    assert group.servers[0].command("EXISTS", "lock:job") == 0


def test_a_master_that_was_replaced_and_does_not_know(lab: Lab, group: Watched) -> None:
    """It answers as ever. The sentinels are asked before each renewal, so that the first holder ends."""
    run, stamps = stamping(lab)
    other = RedisServer(lab.folder / "other")
    with other.running():
        for sentinel in group.sentinels:
            sentinel.command("SENTINEL", "REMOVE", SERVICE)
            sentinel.command("SENTINEL", "MONITOR", SERVICE, HOST, other.port, 2)
        replaced = boottime()
        _, stderr = run.communicate(timeout=TTL)
        assert run.returncode == 76
        assert b"lease lost" in stderr
        assert stamps.last() - replaced < TTL / 3 + default_grace(TTL) + 0.5
        assert group.servers[0].command("EXISTS", "lock:job") == 1


def test_a_failover_that_grants_twice(lab: Lab, group: Watched) -> None:
    """Replication is asynchronous: a grant that the replica has not heard of is lost with the master. Both run then,
    until the first holder's next renewal; what checks the token refuses the first at once."""
    master = group.master()
    (replica,) = group.replicas()
    # As a network that lags: the replica follows nobody for a while.
    replica.command("REPLICAOF", HOST, str(free_port()))
    run, stamps = stamping(lab)
    first_token = int(master.command("GET", token_key("job"))[2:])
    master.kill()
    second, second_stamps = stamping(lab, "next", wait=True)
    wait_until(second_stamps.lines, 20, "the second grant")
    granted_twice_at = second_stamps.lines()[0][1]
    assert is_alive(stamps.writer())
    assert stamps.last() > granted_twice_at - 0.1
    second_token = int(replica.command("GET", token_key("job"))[2:])
    assert second_token > first_token

    _, stderr = run.communicate(timeout=TTL)
    assert run.returncode == 76
    assert stderr.startswith(b"distlock: 'job': lease lost: ")
    assert not is_alive(stamps.writer())
    assert stamps.last() - granted_twice_at < TTL / 3 + default_grace(TTL) + 0.5
    assert second_stamps.go_on()
    assert second.poll() is None
    time.sleep(TTL / 3 + 0.5)  # its own renewal
    assert second_stamps.go_on()
