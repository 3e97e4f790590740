"""Purging local locks: floors, whoever opens one at that moment, and purges that are killed."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import local_fixtures
from contenders import environment, request, take, try_once
from distlock.backends.base import LockState, Mark, Unavailable
from distlock.backends.local import LocalBackend
from processes import wait_until

url = local_fixtures.url
backend = local_fixtures.backend


def purge(backend: LocalBackend, unused_for: float = 0.0, timeout: float = 5.0) -> list[str]:
    return list(backend.purge(lambda _: True, unused_for, timeout))


def used(backend: LocalBackend, name: str) -> int:
    grant = take(backend, name)
    backend.release(grant, 5.0)
    assert grant.token is not None
    return grant.token


def ahead(backend: LocalBackend, name: str, seconds: float) -> None:
    """As if it had been made while the clock was ahead."""
    token = int((time.time() + seconds) * 1e6)
    with closing(sqlite3.connect(Path(backend.places(name)[0]) / "lock.db", isolation_level=None)) as sql:
        sql.execute("UPDATE lock SET token = ?1, reserved = ?1 + 500", (token,))


def test_tokens_grow_over_a_purge_though_the_clock_was_set_back(backend: LocalBackend) -> None:
    used(backend, "a")
    ahead(backend, "a", 3600.0)
    high = used(backend, "a")
    used(backend, "b")
    assert sorted(purge(backend)) == ["a", "b"]
    used(backend, "c")
    assert purge(backend) == ["c"]  # its tokens are above the floor, which grows
    assert used(backend, "a") > high


def test_nothing_is_left_of_ten_locks_but_the_floor(backend: LocalBackend) -> None:
    for number in range(10):
        used(backend, f"n{number}")
    assert len(purge(backend)) == 10
    assert os.listdir(backend.directory) == ["floor"]


def test_who_has_just_opened_the_lock_gets_a_new_one(backend: LocalBackend, url: str) -> None:
    token = used(backend, "n")
    other = LocalBackend.from_url(url, environment())
    with other.enqueue(request("n", 30.0)) as ticket:  # opens it, and has no place in the queue yet
        assert purge(backend) == ["n"]
        grant = ticket.poll()
        assert grant is not None
        assert grant.token is not None
        assert grant.token > token
        assert try_once(backend, "n") is None
        other.renew(grant, 5.0)
        assert purge(backend) == []
        other.renew(grant, 5.0)
        other.close()


USER = """
import os, sys, time
from contenders import acquire, environment, request
from distlock.backends.local import LocalBackend

url, stamps = sys.argv[1:]
backend, out = LocalBackend.from_url(url, environment()), os.open(stamps, os.O_WRONLY | os.O_APPEND)
until = time.monotonic() + 3.0
while time.monotonic() < until:
    with backend.enqueue(request("n", 30.0)) as ticket:
        grant = acquire(ticket)
    os.write(out, b"in %d\\n" % grant.token)
    backend.renew(grant, 5.0)
    os.write(out, b"out %d\\n" % grant.token)
    backend.release(grant, 5.0)
    time.sleep(0.002)
"""
PURGER = """
import sys, time
from contenders import environment
from distlock.backends.local import LocalBackend

backend, count, until = LocalBackend.from_url(sys.argv[1], environment()), 0, time.monotonic() + 3.0
while time.monotonic() < until:
    count += len(list(backend.purge(lambda _: True, 0.0, 5.0)))
print(count)
"""


def test_purges_and_grants_at_the_same_time(url: str, tmp_path: Path) -> None:
    stamps = tmp_path / "stamps"
    stamps.touch()
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, url, *more], stdout=subprocess.PIPE, cwd=Path(__file__).parent, text=True
        )
        for code, more in [(USER, [str(stamps)])] * 3 + [(PURGER, [])] * 2
    ]
    said = [process.communicate(timeout=30)[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(started)
    assert sum(int(text) for text in said if text) > 3
    lines = stamps.read_text().split("\n")[:-1]
    tokens = [int(line.removeprefix("in ")) for line in lines[::2]]
    assert len(tokens) > 10
    assert lines == [f"{what} {token}" for token in tokens for what in ("in", "out")]
    assert tokens == sorted(set(tokens))


def test_no_lock_goes_while_one_is_being_made_or_opened(backend: LocalBackend) -> None:
    """Its maker has read the floor already."""
    used(backend, "n")
    descriptor = os.open(backend.directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with pytest.raises(Unavailable, match="busy"):
            purge(backend, timeout=0.2)
        used(backend, "other")
    finally:
        os.close(descriptor)
    assert sorted(purge(backend)) == ["n", "other"]


def test_a_purge_that_is_frozen_holds_up_new_runs_and_no_holder(backend: LocalBackend) -> None:
    grant = take(backend, "held")
    descriptor = os.open(backend.directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match="busy"), backend.enqueue(request("new", 3.0)):
            pass
        backend.renew(grant, 5.0)
        backend.release(grant, 5.0)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("text", [b"", b"12", b"x\n", b"12\n13\n"])
def test_a_damaged_floor_is_none_to_build_on(backend: LocalBackend, text: bytes) -> None:
    used(backend, "n")
    (backend.directory / "floor").write_bytes(text)
    used(backend, "n")
    with pytest.raises(Unavailable, match="floor is damaged") as caught, backend.enqueue(request("new", 30.0)):
        pass
    assert caught.value.permanent
    with pytest.raises(Unavailable, match="floor is damaged"):
        purge(backend)
    used(backend, "n")


def test_what_a_killed_purge_left_goes_with_the_next(backend: LocalBackend) -> None:
    used(backend, "n")
    (lock,) = backend.directory.glob("*.lock")
    left = lock.rename(f"{lock}.0123456789abcdef.new")
    assert purge(backend) == []
    assert left.exists()  # of somebody who may be at it
    hour_ago = time.time() - 3600.0
    os.utime(left, (hour_ago, hour_ago))
    assert purge(backend) == []
    assert not left.exists()


def test_a_lock_is_as_old_as_its_last_release(backend: LocalBackend) -> None:
    used(backend, "old")
    hour_ago = time.time() - 3600.0
    os.utime(Path(backend.places("old")[0]) / "queue", (hour_ago, hour_ago))
    used(backend, "young")
    assert purge(backend, 7200.0) == []
    assert purge(backend, 1800.0) == ["old"]


def test_marks_are_remembered_until_they_need_not_be(backend: LocalBackend) -> None:
    grant = take(backend, "n")
    backend.release(grant, 5.0, (Mark("once", 0.0, 0.5),))
    assert purge(backend) == []
    wait_until(lambda: backend.marked("n", "once", 5.0) is None)
    assert purge(backend) == ["n"]


def test_a_damaged_lock_stays_and_hides_no_other(backend: LocalBackend) -> None:
    for name in ("a", "b", "c"):
        used(backend, name)
    (Path(backend.places("b")[0]) / "lock.db").write_bytes(b"no database at all" * 100)
    found = backend.purge(lambda _: True, 0.0, 5.0)
    names: list[str] = []
    with pytest.raises(Unavailable, match="damaged"):
        names.extend(found)
    assert not any(state.name in ("a", "c") for state in _readable(backend))


def _readable(backend: LocalBackend) -> Iterator[LockState]:
    states = backend.locks(5.0)
    while True:
        try:
            yield next(states)
        except (StopIteration, Unavailable):
            return
