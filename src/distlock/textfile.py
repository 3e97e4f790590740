"""Metrics for node_exporter's textfile collector: one file a user, replaced as a whole after each run."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .journal import Journal

_LONGEST_WAIT = 3.0
_LOOK = 0.005


def textfile_of(place: str, uid: int) -> Path:
    """In a folder ``distlock-UID.prom``; a file's name gets the uid before its end. Two users would replace each
    other's numbers in one file."""
    path = Path(place)
    if place.endswith("/") or path.is_dir():
        return path / f"distlock-{uid}.prom"
    return path.with_name(f"{path.stem}-{uid}{path.suffix or '.prom'}")


def write_textfile(place: str, journal: Journal) -> None:
    """After the run was added to the journal. Many runs that end at once write one after the other, each what the
    journal says by then, so the last file has them all; those that find somebody waiting to write leave it to that one.
    Raises OSError, Unavailable."""
    path = textfile_of(place, os.geteuid())
    folder = journal.path.parent
    with _locked(folder / "textfile.next", wait=False) as next_in_line:
        if not next_in_line:
            return
        lock = _lock(folder / "textfile.writing", wait=True)
    from .metrics import metrics_text

    # Out of the line again, so that whoever comes now writes anew, and only then is the journal read.
    try:
        _replace(path, metrics_text(journal))
    finally:
        os.close(lock)


def _replace(path: Path, text: bytes) -> None:
    """Never half of it; readable by the collector, whatever the umask. The collector ignores other endings."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(text)
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


@contextmanager
def _locked(path: Path, *, wait: bool) -> Iterator[bool]:
    try:
        descriptor = _lock(path, wait=wait)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(descriptor)


def _lock(path: Path, *, wait: bool) -> int:
    """Closing the descriptor gives it back. Raises BlockingIOError when it was not had."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + (_LONGEST_WAIT if wait else 0.0)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise
            time.sleep(_LOOK)
    except BaseException:
        os.close(descriptor)
        raise
