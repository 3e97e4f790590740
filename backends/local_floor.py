"""The floor of a directory: a number above every token of the locks that were purged from it.

New locks begin at the time in microseconds, so above older ones unless the clock was set back; and at the floor, for
then. Whoever makes a lock keeps the directory locked (shared) from reading the floor until the lock is in place, and a
purge (alone) from writing it until the lock is gone: else one that read it early could put a lock with older tokens
where one was purged meanwhile. Who opens a lock keeps it locked (shared) as well until all files are open: SQLite opens
its log by path and late, and would pair that of a new lock with the database of a purged one.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .base import Unavailable
from .local_files import give, sync

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLOOR = "floor"
_LOOK_AGAIN = 0.01


@contextmanager
def unpurged(directory: Path, timeout: float, *, alone: bool = False) -> Iterator[None]:
    """While nobody purges; ``alone``: while nobody makes or opens a lock either. Raises OSError, Unavailable."""
    until = time.monotonic() + timeout
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise Unavailable(f"{directory} is busy: a process may be frozen while it purges") from None
                time.sleep(_LOOK_AGAIN)
        yield
    finally:
        os.close(descriptor)


def read(directory: Path) -> int:
    """0 if nothing was purged. Raises OSError, Unavailable."""
    try:
        text = (directory / FLOOR).read_bytes()
    except FileNotFoundError:
        return 0
    if not text.endswith(b"\n") or not text[:-1].isdigit():
        raise Unavailable(
            f"{directory / FLOOR} is damaged: it holds no number; write one above all tokens", permanent=True
        )
    return int(text)


def raise_to(directory: Path, token: int, group: int | None) -> None:
    """On the disk when this returns. Raises OSError, Unavailable."""
    if read(directory) >= token:
        return
    unfinished = directory / f"{FLOOR}.{os.urandom(8).hex()}.new"
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, b"%d\n" % token)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        give(unfinished, 0o600 if group is None else 0o660, group)
        os.rename(unfinished, directory / FLOOR)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
    sync(directory)
