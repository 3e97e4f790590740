"""distlock's own words: to stderr, one line each, beginning with ``distlock: ``."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence

from .quoting import printable

_STDERR = 2
_ONE_PAGE = 4096


def line(text: str) -> bytes:
    """Never more than one line, and nothing that a terminal would obey, whatever is in it: a path or the message of a
    library may come unquoted."""
    return f"distlock: {printable(' '.join(text.splitlines()))}\n".encode()


def say(text: str) -> None:
    """Blocks while stderr is a full pipe: nothing that a deadline depends on may come after it."""
    data = line(text)
    try:
        while data:
            data = data[os.write(_STDERR, data) :]
    except OSError:
        pass  # closed, or its reader is gone: there is nobody to tell


def say_if_ready(text: str, descriptor: int | None = None) -> bool:
    """As say(), if it cannot block; False if it could. A pipe that is ready takes one page at once: a longer line is
    cut."""
    descriptor = _STDERR if descriptor is None else descriptor
    look = select.poll()
    look.register(descriptor, select.POLLOUT)
    if not look.poll(0):
        return False
    data = line(text)
    if len(data) > _ONE_PAGE:
        data = data[: _ONE_PAGE - 1].decode("utf-8", "ignore").encode() + b"\n"
    try:
        os.write(descriptor, data)
    except OSError:
        pass
    return True


def cannot_kill(pids: Sequence[int]) -> str:
    """The tree was to be ended, and something in it lives on: set-uid, or in uninterruptible sleep."""
    which = " ".join(map(str, sorted(pids)))
    return f"cannot kill {which}: the lease is kept for as long as that lives and the backend lets us"
