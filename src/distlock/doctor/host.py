"""What of this machine breaks locks: its state directory, its pauses, its libraries."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from distlock.backends.base import ConfigurationError
from distlock.dependencies import misfits
from distlock.durations import format_duration

from .catalogue import LIBRARY, PAUSES, STATE_FULL, STATE_HANGS, STATE_UNWRITABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .catalogue import Noted
    from .measures import Pauses

_ROOM = 1 << 20
"""Bytes: with less the journal leaves the rest to locks and lease files."""
_LONG_PAUSE = 0.25
"""Seconds: half of the margin that the shortest TTL has for a late wake-up."""
_PATIENCE = 2.0


class StateDirectory:
    """Looked at by a thread of its own, since a disk that is gone answers nobody."""

    def __init__(self, find: Callable[[], Path]) -> None:
        self._found: list[Noted] = []
        try:
            self._path: Path | None = find()
        except ConfigurationError as error:  # nothing keeps locks elsewhere from being had
            self._path = None
            self._found.append(STATE_UNWRITABLE.found(str(error)))
        self._thread = threading.Thread(target=self._look, name="state directory", daemon=True)
        self._thread.start()

    def findings(self) -> list[Noted]:
        """Waits for the disk for some seconds, counted from here."""
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            return [STATE_HANGS.found(f"{self._path}: no answer within {format_duration(_PATIENCE)}")]
        return self._found

    @property
    def answers(self) -> bool:
        return not self._thread.is_alive()

    def _look(self) -> None:
        if self._path:
            self._found += directory_findings(self._path)


def directory_findings(path: Path) -> Iterator[Noted]:
    """Writes a file there and removes it; makes no directory."""
    there = path
    try:
        while not there.exists() and there != there.parent:
            there = there.parent
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        _write(there) if there == path else _may_be_made(there)
        room = os.statvfs(there)
    except OSError as error:
        advice = STATE_FULL if error.errno in (errno.ENOSPC, errno.EDQUOT) else STATE_UNWRITABLE
        yield advice.found(f"{there}: {error.strerror}")
        return
    if room.f_bavail * room.f_frsize < _ROOM:
        yield STATE_FULL.found(f"{there}: {room.f_bavail * room.f_frsize // 1024} KiB are left")
    elif room.f_files and not room.f_favail:
        yield STATE_FULL.found(f"{there}: no inode is left")


def _may_be_made(parent: Path) -> None:
    if not os.access(parent, os.W_OK | os.X_OK, effective_ids=True):
        raise PermissionError(errno.EACCES, f"user {os.geteuid()} may not make a directory there")


def _write(folder: Path) -> None:
    trial = folder / f"doctor.{os.getpid()}"
    descriptor = os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, bytes(4096))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        trial.unlink()


def pause_findings(pauses: Pauses) -> Iterator[Noted]:
    if pauses.longest > _LONG_PAUSE:
        watched = format_duration(round(pauses.watched, 1))
        yield PAUSES.found(f"a pause of {format_duration(pauses.longest)} in {watched}; {_load()}")


def _load() -> str:
    try:
        return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    except OSError:
        return "the load is not known"


def library_findings() -> Iterator[Noted]:
    for name, wanted, found in misfits():
        yield LIBRARY.found(f"{name} {found or 'is not installed'}; wanted is {wanted or 'any'}")
