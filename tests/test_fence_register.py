"""The register of a resource: no smaller token after a greater, whatever happens to the file in between."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlock.backends.base import ConfigurationError, Unavailable
from distlock.errors import StaleToken
from distlock.fence_register import FenceRegister

SECTOR = 512
tokens = st.integers(0, 2**63 - 1) | st.integers(0, 5)


def never() -> None:
    raise AssertionError("nobody else has it")


@contextmanager
def opened(path: Path, resource: str = "disk") -> Iterator[FenceRegister]:
    register = FenceRegister.locked(path, resource, 0o600, never)
    try:
        yield register
    finally:
        register.close()


def advance(path: Path, token: int) -> bool:
    """Whether it was let pass."""
    with opened(path) as register:
        try:
            register.advance(token)
        except StaleToken as stale:
            assert str(token) in str(stale)
            return False
        assert register.greatest() == token
        return True


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "disk.fence"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(tokens, max_size=12))
def test_as_a_maximum(path: Path, sequence: list[int]) -> None:
    path.unlink(missing_ok=True)
    greatest = -1
    for token in sequence:
        assert advance(path, token) == (token >= greatest)
        greatest = max(greatest, token)
    with opened(path) as register:
        assert register.greatest() == (None if greatest < 0 else greatest)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(tokens, min_size=1, max_size=6, unique=True), st.integers(0, SECTOR), st.binary(max_size=SECTOR))
def test_a_write_that_was_cut_short_loses_nothing_that_was_accepted(
    path: Path, accepted: list[int], cut: int, rest: bytes
) -> None:
    """Of the sector that was being written the first bytes are new, and of what follows some are anything."""
    path.unlink(missing_ok=True)
    accepted.sort()
    for token in accepted[:-1]:
        assert advance(path, token)
    before = path.read_bytes() if path.exists() else b""
    assert advance(path, accepted[-1])
    after = path.read_bytes()
    if len(accepted) == 1:
        return
    changed = {n for n in range(len(after) // SECTOR) if after[n * SECTOR :][:SECTOR] != before[n * SECTOR :][:SECTOR]}
    (sector,) = changed
    torn = (after[sector * SECTOR :][:cut] + rest).ljust(SECTOR, b"\0")[:SECTOR]
    path.write_bytes(before[: sector * SECTOR] + torn + before[(sector + 1) * SECTOR :])
    with opened(path) as register:
        found = register.greatest()
    assert found is not None
    assert found >= accepted[-2]
    assert advance(path, accepted[-1])
    assert not advance(path, accepted[-2])


def test_the_token_is_on_disk_before_it_is_accepted(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert advance(path, 1)
    synced: list[bytes] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.pread(descriptor, 3 * SECTOR, 0))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert advance(path, 2)
    assert b"2 " in synced[-1]
    synced.clear()
    assert advance(path, 2)
    assert not synced, "an equal token needs no write"


def test_a_disk_that_fails_accepts_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert advance(path, 1)

    def fsync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with opened(path) as register, pytest.raises(Unavailable, match="Input/output error"):
        register.advance(2)


def test_a_full_disk_leaves_no_half_register(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:100]))
        with pytest.raises(ConfigurationError, match="No space left"):
            advance(path, 1)
    assert list(path.parent.iterdir()) == []
    assert advance(path, 1)


@pytest.mark.parametrize(
    "damage",
    [b"", b"\0" * 3 * SECTOR, b"{}".ljust(3 * SECTOR), b'{"distlock_fence": 1}'.ljust(3 * SECTOR), b"x", b"[1]"],
    ids=repr,
)
def test_a_damaged_file_lets_nothing_pass_until_it_is_reset(path: Path, damage: bytes) -> None:
    assert advance(path, 7)
    path.write_bytes(damage)
    with opened(path) as register:
        with pytest.raises(Unavailable, match=r"is damaged.*--reset") as caught:
            register.advance(8)
        assert caught.value.permanent
        register.reset()
        register.advance(3)


def test_two_damaged_slots_let_nothing_pass(path: Path) -> None:
    assert advance(path, 7)
    whole = path.read_bytes()
    path.write_bytes(whole[:SECTOR] + whole[SECTOR:].replace(b"7", b"9").replace(b"-1", b"-2"))
    with opened(path) as register, pytest.raises(Unavailable, match="neither of its two slots"):
        register.advance(10)


def test_an_unknown_layout_and_another_resource(path: Path) -> None:
    assert advance(path, 7)
    with opened(path, "tape") as register, pytest.raises(ConfigurationError, match="is that of 'disk'"):
        register.advance(8)
    path.write_bytes(path.read_bytes().replace(b'"distlock_fence": 1', b'"distlock_fence": 2'))
    with opened(path) as register, pytest.raises(Unavailable, match="layout 2"):
        register.advance(8)


@pytest.mark.parametrize("resource", ["x" * 200, "замок" * 20, '"\\' * 100, "鍵"])
def test_names_of_resources(path: Path, resource: str) -> None:
    """The longest there can be fit their sector."""
    with opened(path, resource) as register:
        register.advance(5)
        assert register.greatest() == 5
    assert len(path.read_bytes()) == 3 * SECTOR


def test_reset_forgets(path: Path) -> None:
    assert advance(path, 7)
    with opened(path) as register:
        register.reset()
        assert register.greatest() is None
    assert advance(path, 1)


def test_a_waiter_whose_file_was_replaced_takes_the_new_one(path: Path) -> None:
    assert advance(path, 7)
    held = os.open(path, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)

    def replaced() -> None:
        os.unlink(path)
        os.close(held)  # the lock of the old file becomes free

    register = FenceRegister.locked(path, "disk", 0o600, replaced)
    register.advance(1)
    register.close()
    assert advance(path, 1)
    assert sorted(path.parent.iterdir()) == [path]


def test_many_first_users_make_one_file(path: Path) -> None:
    children = []
    for token in range(12):
        pid = os.fork()
        if pid == 0:
            try:
                register = FenceRegister.locked(path, "disk", 0o600, lambda: None)
                register.advance(token)
            except StaleToken:
                pass
            except BaseException:  # noqa: BLE001 - the parent looks at the code
                os._exit(1)
            os._exit(0)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 12
    with opened(path) as found:
        assert found.greatest() == 11
    assert sorted(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("seed", range(20))
def test_killed_between_two_instructions_it_has_lost_nothing(path: Path, seed: int) -> None:
    """A process that does nothing but advance, killed at a moment that nobody chose."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        register = FenceRegister.locked(path, "disk", 0o600, never)
        for token in range(1_000_000):
            register.advance(token)
            os.write(writing, b"%d\n" % token)
    os.close(writing)
    moment = random.Random(seed)
    lines = b""
    while lines.count(b"\n") < moment.randrange(1, 60):
        lines += os.read(reading, 4096)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while rest := os.read(reading, 65536):
        lines += rest
    os.close(reading)
    accepted = int(lines.rpartition(b"\n")[0].splitlines()[-1])
    with opened(path) as register:
        greatest = register.greatest()
    assert greatest is not None
    assert accepted <= greatest <= accepted + 1
