"""How the first in line learns that one of several holders is gone: it cannot wait for "any of these bytes".

Every grant, renewal and release writes to the queue file (local_witness.py), which inotify tells of; and the end of a
holder's supervisor, of which nobody writes, makes a pidfd readable. Both are hints: what cannot be watched, since there
are too many or no descriptor is left, is seen when the waiter looks again by itself.
"""

from __future__ import annotations

import ctypes
import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

from .local_crash import started

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .local_record import Record

_IN_MODIFY = 0x2
_libc = ctypes.CDLL(None, use_errno=True)
_MOST = 200
"""Descriptors: a process often has 1024, most of them the program's whose library this is."""


class Bell:
    """Armed from its making on. Raises OSError."""

    def __init__(self, descriptor: int) -> None:
        self._changes = _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
        try:
            path = f"/proc/self/fd/{descriptor}".encode()  # the open file, whatever is at its path now
            _checked(_libc.inotify_add_watch(self._changes, path, _IN_MODIFY))
        except OSError:
            os.close(self._changes)
            raise
        self._ends: dict[int, int] = {}  # by ticket: pidfds
        self._ended: set[int] = set()

    def watch(self, holders: Iterable[Record], namespace: str) -> bool:
        """These and no others. False if the end of one was seen or told already: then look again soon."""
        wanted = {holder.ticket: holder for holder in holders if holder.namespace == namespace != "" and holder.started}
        for ticket in self._ends.keys() - wanted.keys():
            os.close(self._ends.pop(ticket))
        self._ended &= wanted.keys()
        for ticket, holder in wanted.items():
            if ticket not in self._ends and ticket not in self._ended and len(self._ends) < _MOST:
                self._add(ticket, holder)
        return not self._ended

    def _add(self, ticket: int, holder: Record) -> None:
        with suppress(OSError):
            try:
                self._ends[ticket] = os.pidfd_open(holder.holder.pid)
            except ProcessLookupError:
                self._ended.add(ticket)
                return
            if started(holder.holder.pid) != holder.started:  # another process has that pid now
                self._end(ticket)

    def _end(self, ticket: int) -> None:
        self._ended.add(ticket)
        os.close(self._ends.pop(ticket))

    def register(self, poll: select.poll) -> None:
        for descriptor in (self._changes, *self._ends.values()):
            poll.register(descriptor, select.POLLIN)

    def silence(self) -> None:
        """Before one looks: what was told until then is seen by looking."""
        with suppress(BlockingIOError):
            while os.read(self._changes, 65536):
                pass

    def heard(self, ready: set[int]) -> None:
        """An ended process stays readable: told once."""
        for ticket in [ticket for ticket, descriptor in self._ends.items() if descriptor in ready]:
            self._end(ticket)

    def close(self) -> None:
        for descriptor in (self._changes, *self._ends.values()):
            os.close(descriptor)
        self._ends = {}


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
