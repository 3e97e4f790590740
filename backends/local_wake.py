"""What wakes a waiter: the end of the one before it, of the holder, or of one of several holders."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from .local_directory import failure
from .local_queue import Watcher

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .local_bell import Bell
    from .local_database import Database
    from .local_record import Record


class Wake:
    """Costs nothing until the first wait."""

    def __init__(self) -> None:
        self.target = 0
        """The ticket whose byte is waited for; 0: none."""
        self._watcher: Watcher | None = None
        self._bell: Bell | None = None
        self._rings = False
        self._event = -1

    def by_any_of(self, holders: Sequence[Record], database: Database, namespace: str) -> bool:
        """Of several, or of none. Called inside the transaction that saw them, so that no change behind it is missed.
        False if an end may be missed all the same, or the processes of one are gone already."""
        self._rings = False
        if not holders:
            return True
        self.target = 0
        try:
            if self._bell is None:
                from .local_bell import Bell  # loads ctypes

                self._bell = Bell(database.descriptor)
            self._bell.silence()
        except OSError:
            return False  # no inotify left
        self._rings = True
        return self._bell.watch(holders, namespace)

    def wait(self, seconds: float, cancel: int, database: Database) -> None:
        try:
            if self._event < 0:
                self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            if self.target and (self._watcher is None or self._watcher.ticket != self.target):
                self._watcher = Watcher(database.descriptor, self._event, self.target)
        except OSError as error:
            raise failure(database.path, error) from error
        poll = select.poll()
        poll.register(self._event, select.POLLIN)
        poll.register(cancel, select.POLLIN)
        bell = self._bell if self._rings else None
        if bell is not None:
            bell.register(poll)
        ready = poll.poll(seconds * 1000)
        if bell is not None:
            bell.heard({descriptor for descriptor, _ in ready})
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return
        self._watcher = None

    def forget(self) -> None:
        """The files: others are to be watched from now on."""
        self.target, self._watcher, self._rings = 0, None, False
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    def close(self) -> None:
        self.forget()
        if self._event >= 0:
            os.close(self._event)
            self._event = -1
