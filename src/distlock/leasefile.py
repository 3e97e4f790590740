"""The small file behind DISTLOCK_LEASE: what a job can ask about its own lease without a client library.

Kept by the renewer, one a holding, replaced as a whole so that a reader never sees half of it. Its instants are on
CLOCK_BOOTTIME and mean something only under the boot id beside them.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .backends.base import ConfigurationError, Grant
from .clock import boot_id, boottime_offset
from .renewal import Schedule
from .state import state_directory

_KEPT_AFTER_DEADLINE = 86400.0


class LeaseFile:
    """Raises OSError; a run goes on without it."""

    def __init__(self, state_directory: Path, owner: str, backend: str) -> None:
        self._directory = state_directory / "leases"
        self.path = self._directory / f"{owner}.json"
        self._backend = backend
        self._boot_id = boot_id()
        self._offset = boottime_offset()
        self._make_directory()

    def _make_directory(self) -> None:
        for directory in (self._directory.parent, self._directory):  # parents=True gives the mode to the last alone
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, grant: Grant, soft: float, hard: float) -> None:
        content = {
            "version": 1,
            "name": grant.name,
            "owner": grant.owner,
            "token": grant.token,
            "holder_index": grant.holder_index,
            "max_holders": grant.holders,
            "backend": self._backend,
            "ttl_seconds": grant.ttl,
            "soft_deadline_boottime": soft,
            "hard_deadline_boottime": hard,
            "boottime_offset_seconds": self._offset,
            "boot_id": self._boot_id,
        }
        new = self.path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # The child waits for this. json.dump and a file object take twice as long.
            written = json.dumps(content).encode()  # ASCII
            if os.write(descriptor, written) < len(written):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        os.replace(new, self.path)

    def remove(self) -> None:
        for path in (self.path, self.path.with_suffix(".new")):
            path.unlink(missing_ok=True)

    def remove_stale(self, now: float) -> int:
        """What killed renewers left, a day past its deadline: how many there were. A home on a network file system
        holds the files of other hosts too, whose clock is not ours: the age of such a file counts, which each renewal
        sets back. A file that is no lease file goes as well: the directory is ours alone."""
        removed = 0
        for path in self._directory.glob("*"):
            try:
                age = time.time() - path.stat().st_mtime
                text = path.read_bytes()
            except OSError:
                continue
            try:
                content = json.loads(text)
                if content["boot_id"] == self._boot_id:
                    over = now - content["hard_deadline_boottime"]
                else:
                    over = age - content["ttl_seconds"]
            except (ValueError, KeyError, TypeError):
                over = age
            if over > _KEPT_AFTER_DEADLINE:
                path.unlink(missing_ok=True)
                removed += 1
        return removed


class _Lease(NamedTuple):
    """What the file says."""

    grant: Grant
    soft: float
    hard: float


class KeptLeaseFile:
    """The lease file of one run, as the renewer keeps it.

    A thread of its own writes it, always the latest that it was told: a state directory that hangs must keep neither a
    renewal nor a release. A full or read-only disk, or one that does not answer, does not stop a job whose lock is
    elsewhere: the job then has no DISTLOCK_LEASE, and ``note`` is told why.
    """

    def __init__(self, owner: str, backend: str, note: Callable[[str], None]) -> None:
        self._note = note
        self._file: LeaseFile | None = None
        self._written = False
        self._tidied = False
        self._wanted: _Lease | None = None
        self._told = 0  # how many times; the thread has done what it was told the _done-th time
        self._done = 0
        self._news = threading.Condition()
        thread = threading.Thread(target=self._run, args=(owner, backend), name="lease file", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # no thread to be had
            self._give_up(error)

    @property
    def path(self) -> str:
        """Empty if nothing could be written yet."""
        return str(self._file.path) if self._file and self._written else ""

    def write(self, schedule: Schedule) -> None:
        self._tell(_Lease(schedule.grant, schedule.soft, schedule.hard))

    def remove(self) -> None:
        self._tell(None)

    def _tell(self, lease: _Lease | None) -> None:
        with self._news:
            self._wanted = lease
            self._told += 1
            self._news.notify_all()

    def settle(self, timeout: float) -> bool:
        """Until the disk has what was told, for ``timeout`` seconds at most; whether it has."""
        with self._news:
            told = self._told
            return self._news.wait_for(lambda: self._done >= told, timeout)

    def _run(self, owner: str, backend: str) -> None:
        try:
            self._file = file = LeaseFile(state_directory(), owner, backend)
        except (OSError, ConfigurationError) as error:
            self._give_up(error)
            return
        while True:
            with self._news:
                self._news.wait_for(lambda: self._told > self._done)
                wanted, told = self._wanted, self._told
            self._obey(file, wanted)
            with self._news:
                self._done = told
                self._news.notify_all()

    def _give_up(self, error: Exception) -> None:
        self._note(f"no lease file: {error}")
        with self._news:
            self._done = 1 << 62  # nobody waits for what will not come
            self._news.notify_all()

    def _obey(self, file: LeaseFile, wanted: _Lease | None) -> None:
        try:
            if wanted:
                file.write(*wanted)
                self._written = True
            elif self._written:
                file.remove()
        except OSError as error:
            self._note(f"no lease file: {error}" if wanted else f"the lease file could not be removed: {error}")

    def tidy(self, now: float) -> None:
        """Once, and not while somebody waits for the child to start."""
        if self._file and not self._tidied:
            self._tidied = True
            try:
                self._file.remove_stale(now)
            except OSError as error:
                self._note(f"old lease files could not be removed: {error}")
