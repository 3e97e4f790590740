"""How a process that was forked before anything was known is told what to do.

It is forked early because a small process is forked, executed and ended faster than a large one, and because it can
load what it needs while the options are being read. The text lies in memory that both share, and a byte in a pipe says
that it is there: so nobody waits for a reader who is stopped. End of file instead means that there is nothing to do.
"""

from __future__ import annotations

import fcntl
import os

from .wire import LOWEST_DESCRIPTOR, pipe

_MFD_NOEXEC_SEAL = 8


def _memory() -> int:
    """A system may insist (vm.memfd_noexec) on what one before Linux 6.3 does not know."""
    try:
        return os.memfd_create("distlock-briefing", os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError:
        return os.memfd_create("distlock-briefing")


class Briefing:
    """For one receiver. Made before it is forked."""

    def __init__(self) -> None:
        memory = _memory()
        self._memory = fcntl.fcntl(memory, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR)
        os.close(memory)
        self._reading, self._writing = pipe()

    @property
    def descriptors(self) -> tuple[int, int]:
        """The receiver's."""
        return self._memory, self._reading

    def give(self, content: bytes) -> None:
        """Once, in the process that knows. A receiver that is dead is none of its concern."""
        view = memoryview(content)
        while view:
            view = view[os.write(self._memory, view) :]
        try:
            os.write(self._writing, b".")
        except BrokenPipeError:
            pass
        self.close()

    def is_for_me(self) -> None:
        """In the receiver, first of all: or it would not see the end of the giver."""
        os.close(self._writing)

    def receive(self) -> bytes | None:
        """Waits. None: nothing is to be done."""
        there = os.read(self._reading, 1)
        content = os.pread(self._memory, os.fstat(self._memory).st_size, 0) if there else None
        os.close(self._reading)
        os.close(self._memory)
        return content

    def close(self) -> None:
        for descriptor in (self._memory, self._reading, self._writing):
            os.close(descriptor)
