"""The small file behind DISTLOCK_LEASE: what a job can ask about its own lease without a client library.

Kept by the renewer, one a holding, replaced as a whole so that a reader never sees half of it. Its instants are on
CLOCK_BOOTTIME and mean something only under the boot id beside them.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

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

    def remove_stale(self, now: float) -> None:
        """What killed renewers left, a day past its deadline. A home on a network file system holds the files of other
        hosts too, whose clock is not ours: the age of such a file counts, which each renewal sets back. A file that is
        no lease file goes as well: the directory is ours alone."""
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


class KeptLeaseFile:
    """The lease file of one run, as the renewer keeps it.

    A full or read-only disk under the state directory does not stop a job whose lock is elsewhere: the job then has no
    DISTLOCK_LEASE, and ``note`` is told why.
    """

    def __init__(self, owner: str, backend: str, note: Callable[[str], None]) -> None:
        self._note = note
        self._tidied = False
        self._written = False
        self._file: LeaseFile | None = None
        try:
            self._file = LeaseFile(state_directory(), owner, backend)
        except (OSError, ConfigurationError) as error:
            note(f"no lease file: {error}")

    @property
    def path(self) -> str:
        """Empty if nothing could be written yet."""
        return str(self._file.path) if self._file and self._written else ""

    def write(self, schedule: Schedule) -> None:
        if self._file:
            try:
                self._file.write(schedule.grant, schedule.soft, schedule.hard)
                self._written = True
            except OSError as error:
                self._note(f"no lease file: {error}")

    def remove(self) -> None:
        if self._file and self._written:
            try:
                self._file.remove()
            except OSError as error:
                self._note(f"the lease file could not be removed: {error}")

    def tidy(self, now: float) -> None:
        """Once, and not while somebody waits for the child to start."""
        if self._file and not self._tidied:
            self._tidied = True
            try:
                self._file.remove_stale(now)
            except OSError as error:
                self._note(f"old lease files could not be removed: {error}")
