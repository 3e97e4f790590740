"""The small file behind DISTLOCK_LEASE: what a job can ask about its own lease without a client library.

Kept by the renewer, one a holding, replaced as a whole so that a reader never sees half of it. Its instants are on
CLOCK_BOOTTIME and mean something only under the boot id beside them.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from .backends.base import Grant

_KEPT_AFTER_DEADLINE = 86400.0


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


class LeaseFile:
    """Raises OSError; a run goes on without it."""

    def __init__(self, state_directory: Path, owner: str, backend: str) -> None:
        self._directory = state_directory / "leases"
        self.path = self._directory / f"{owner}.json"
        self._backend = backend
        self._boot_id = boot_id()

    def write(self, grant: Grant, soft: float, hard: float) -> None:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = {
            "version": 1,
            "name": grant.name,
            "owner": grant.owner,
            "token": grant.token,
            "backend": self._backend,
            "ttl_seconds": grant.ttl,
            "soft_deadline_boottime": soft,
            "hard_deadline_boottime": hard,
            "boot_id": self._boot_id,
        }
        new = self.path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(content, file)
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
