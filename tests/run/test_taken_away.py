"""A lease that was taken away behind everybody's back: the record is removed, or says that a thief has the lock."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis import Redis

from distlock.clock import boottime
from distlock.deadline import default_grace
from processes import Lab, is_alive
from servers import RedisServer

pytestmark = pytest.mark.faults

TTL = 3.0


@pytest.fixture(params=["local", "redis"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    with ExitStack() as stack:
        backend = f"local://{tmp_path / 'locks'}"
        if request.param == "redis":
            backend = stack.enter_context(RedisServer(tmp_path / "redis").running()).url
        made = Lab(tmp_path, backend)
        yield made
        made.close()


def take_away(lab: Lab, how: str) -> None:
    """Behind the back of everybody: the record is removed, or says that a thief has the lock."""
    if lab.backend.startswith("redis:"):
        with Redis.from_url(lab.backend) as server:
            assert server.delete("lock:job") if how == "removed" else server.set("lock:job", "thief", xx=True)
        return
    (path,) = (lab.folder / "locks").glob("*.lock/lock.db")
    if how == "removed":
        shutil.rmtree(path.parent)
        return
    database = sqlite3.connect(path, timeout=5)
    with database:
        database.execute("UPDATE lock SET owner = 'thief'")
    database.close()


@pytest.mark.parametrize("mode", ["plain", "deaf", "deaf daemon"])
@pytest.mark.parametrize("taken", ["removed", "stolen"])
def test_lease_taken_away(lab: Lab, mode: str, taken: str) -> None:
    """The next renewal tells it; TERM at once, everything dead after the grace."""
    command, stamps = lab.stamper(mode)
    run = lab.start("--ttl", str(TTL), "job", "--", *command)
    stamps.writer()
    take_away(lab, taken)
    lost = boottime()
    _, stderr = run.communicate(timeout=10)
    assert run.returncode == 76
    assert stamps.last() - lost < TTL / 3 + default_grace(TTL) + 0.3
    assert not is_alive(stamps.writer())
    assert "lease lost" in stderr.decode()
    assert "COMMAND was stopped" in stderr.decode()


def test_stop_signal_and_grace(lab: Lab) -> None:
    """The child gets the chosen signal, and the grace to clean up in; its own code does not hide the loss."""
    done = lab.folder / "cleaned"
    script = f"trap 'sleep 0.2; echo clean > {done}; exit 0' INT; echo started; while :; do sleep 0.05; done"
    run = lab.start("--ttl", "3", "--kill-signal", "INT", "-k", "1", "job", "--", "sh", "-c", script)
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    take_away(lab, "removed")
    assert run.wait(10) == 76
    assert done.read_text() == "clean\n"
