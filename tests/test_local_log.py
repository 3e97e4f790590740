"""Local locks: the log of the database. Its loss or damage is never "free", a power loss repeats no token, and handing
a lock over waits for no disk."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

import local_fixtures
from contenders import Contender, directory, request, take, try_once
from distlock.backends.base import Grant, Unavailable
from distlock.backends.local import LocalBackend
from distlock.backends.local_boot import Host
from distlock.backends.local_database import BLOCK
from distlock.clock import boottime


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def url(folder: Path) -> str:
    return f"local://{folder}"


backend = local_fixtures.backend


def file_of(folder: Path, name: str) -> Path:
    (path,) = folder.glob(f"*.lock/{name}")
    return path


def _gone(log: Path) -> None:
    log.unlink()


def _emptied(log: Path) -> None:
    os.truncate(log, 0)


def _cut_short(log: Path) -> None:
    os.truncate(log, log.stat().st_size - 1)


def _scrambled(log: Path) -> None:
    log.write_bytes(os.urandom(log.stat().st_size))


def _zeroed(log: Path) -> None:
    log.write_bytes(bytes(log.stat().st_size))


def _one_bit(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)


def _another_salt(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[16] ^= 1
    log.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [_gone, _emptied, _cut_short, _scrambled, _zeroed, _one_bit, _another_salt],
    ids=lambda damage: damage.__name__,
)
@pytest.mark.parametrize("renewed", [False, True], ids=["granted", "renewed"])
def test_a_log_that_a_killed_renewer_left_is_needed(
    url: str, folder: Path, backend: LocalBackend, damage: Callable[[Path], None], renewed: bool
) -> None:
    """Its supervisor and child may live until the deadline, and the database alone says "free"."""
    supervisor = os.getpid()
    with Contender(url, "n", f"--pid={supervisor}", ttl=60.0) as holder:
        holder.granted()
        if renewed:
            holder.tell("renew")
            holder.expect("renewed")
        holder.kill()
    damage(file_of(folder, "lock.db-wal"))
    owner = Grant("n", holder.owner, 1, 60.0, boottime())
    for use in (
        lambda: try_once(backend, "n"),
        lambda: backend.inspect("n", 5.0),
        lambda: list(backend.locks(5.0)),
        lambda: backend.renew(owner, 5.0),
        lambda: backend.release(owner, 5.0),
    ):
        with pytest.raises(Unavailable, match="damaged: its last transactions are lost") as caught:
            use()
        assert caught.value.permanent


def test_a_log_that_nobody_needs_is_not_missed(url: str, folder: Path, backend: LocalBackend) -> None:
    """Once everything of it is in the database."""
    with Contender(url, "n", f"--pid={os.getpid()}", ttl=60.0) as holder:
        holder.granted()
        holder.kill()
    database = sqlite3.connect(file_of(folder, "lock.db"))
    assert database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    database.close()
    assert not list(folder.glob("*.lock/lock.db-wal"))
    assert try_once(backend, "n") is None
    assert backend.inspect("n", 5.0).held


def test_the_last_to_close_takes_the_log_away(backend: LocalBackend, folder: Path) -> None:
    grant = take(backend, "n")
    assert file_of(folder, "lock.db-wal").exists()
    with backend.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        backend.release(grant, 5.0)
        assert file_of(folder, "lock.db-wal").exists()
    assert sorted(path.name for path in folder.glob("*.lock/*")) == ["lock.db", "queue"]


class Machine:
    """A folder of locks on a machine that may lose its power: what was not synced is gone then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._saved = folder.with_name("saved")
        self.boots = 0
        self.boot()

    def boot(self) -> None:
        self.boots += 1
        host = Host.read()._replace(boot=f"boot {self.boots}", machine="this", contained=False)
        self.backend = LocalBackend(lambda: self._folder, boottime, host)

    def note_what_is_on_the_disk(self) -> None:
        shutil.rmtree(self._saved, ignore_errors=True)
        shutil.copytree(self._folder, self._saved)

    def lose_power(self) -> None:
        self.backend.close()
        shutil.rmtree(self._folder)
        shutil.copytree(self._saved, self._folder)
        self.boot()

    def use(self) -> int:
        grant = take(self.backend, "n")
        self.backend.release(grant, 5.0)
        assert grant.token is not None
        return grant.token


def test_no_token_comes_twice_over_a_power_loss(folder: Path) -> None:
    """The disk is taken to have kept nothing since the last reservation: the worst that can be."""
    machine = Machine(folder)
    tokens = [machine.use()]
    for _ in range(3):
        machine.note_what_is_on_the_disk()
        tokens += [machine.use() for _ in range(5)]
        machine.lose_power()
        tokens.append(machine.use())
    assert tokens == sorted(set(tokens))
    assert tokens[-1] - tokens[0] < 5 * BLOCK
    machine.backend.close()


def test_a_lease_from_before_a_power_loss_is_void(folder: Path) -> None:
    machine = Machine(folder)
    machine.use()
    before = take(machine.backend, "n", ttl=60.0)
    machine.note_what_is_on_the_disk()
    machine.lose_power()
    after = take(machine.backend, "n")
    assert after.token is not None
    assert before.token is not None
    assert after.token > before.token
    machine.backend.close()


def test_a_block_of_tokens_that_is_used_up_is_followed_by_another(backend: LocalBackend, folder: Path) -> None:
    first = take(backend, "n")
    backend.release(first, 5.0)
    database = sqlite3.connect(file_of(folder, "lock.db"))
    with database:
        database.execute("UPDATE lock SET token = reserved - 1")
    (reserved,) = database.execute("SELECT reserved FROM lock").fetchone()
    tokens = []
    for _ in range(3):
        grant = take(backend, "n")
        backend.release(grant, 5.0)
        tokens.append(grant.token)
    assert tokens == [reserved, reserved + 1, reserved + 2]
    assert database.execute("SELECT reserved FROM lock").fetchone() == (reserved + BLOCK,)
    database.close()


SYNCS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static int counted(const char *name, int file) {
    int (*next)(int) = dlsym(RTLD_NEXT, name);
    int log = open(getenv("SYNCS"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log < 0 || write(log, "x", 1) != 1) abort();
    close(log);
    return next(file);
}

int fsync(int file) { return counted("fsync", file); }
int fdatasync(int file) { return counted("fdatasync", file); }
"""


@pytest.fixture
def syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many syncs processes started from now on have made."""
    source, library, log = (tmp_path / name for name in ("syncs.c", "syncs.so", "syncs"))
    source.write_text(SYNCS)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    log.touch()
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("SYNCS", str(log))
    return lambda: log.stat().st_size


def test_handing_over_waits_for_no_disk(
    url: str, backend: LocalBackend, folder: Path, syncs: Callable[[], int]
) -> None:
    """Neither the release nor the grant syncs anything, but for the first grant of a boot, which reserves tokens."""
    backend.release(take(backend, "n"), 5.0)
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(Contender(url, "n")) for _ in range(3))

        def hand_over(holder: Contender, waiter: Contender) -> None:
            holder.tell("release")
            holder.expect("released")
            waiter.granted()

        first.granted()
        second.expect("waiting")
        third.expect("waiting")
        before = syncs()
        hand_over(first, second)
        assert syncs() == before
        database = sqlite3.connect(file_of(folder, "lock.db"))
        with database:
            database.execute("UPDATE lock SET reserver = 'an earlier boot'")
        hand_over(second, third)
        assert syncs() > before
        database.close()


def test_the_log_belongs_to_the_group_too() -> None:
    """Whoever of it was first, root included, also where the directory does not hand its group down."""
    members = (("--identity", "4321", "4321", "5000"), ("--identity", "4322", "4322", "5000"), ())
    for mode, order in ((0o2770, members), (0o2770, members[::-1]), (0o770, members[::-1])):
        with directory(mode, gid=5000) as folder:
            usable = order if mode & 0o2000 else tuple((*who[:1], who[1], "5000") if who else who for who in order)
            with ExitStack() as stack:
                queue: list[Contender] = []
                for who in usable:
                    queue.append(stack.enter_context(Contender(f"local://{folder}", "n", *who, "--umask=077")))
                    queue[-1].expect("waiting" if queue[1:] else "granted")
                names = {"lock.db", "lock.db-wal", "lock.db-shm", "queue"}
                assert {path.name for path in folder.glob("*.lock/*")} == names
                for path in folder.glob("*.lock/*"):
                    assert (path.stat().st_mode & 0o777, path.stat().st_gid) == (0o660, 5000)
                for holder, waiter in pairwise(queue):
                    holder.tell("release")
                    holder.expect("released")
                    waiter.granted(1.0)
