"""The child as its supervisor sees it: parked, started, dismissed."""

from __future__ import annotations

import errno
import os
import signal

from ..errors import CommandNotExecutable, CommandNotFound, InternalError
from .briefing import Briefing
from .command import Command
from .gate import Gate, Parked
from .parked import EXEC


class ParkedChild:
    """A process that runs parked.run."""

    def __init__(self, pid: int, briefing: Briefing, gate: Gate, answer: int, *, own_group: bool) -> None:
        self.pid = pid
        self.own_group = own_group
        self._briefing = briefing
        self._gate = gate
        self._answer = answer
        self._is_parked = True
        if own_group:
            try:
                os.setpgid(pid, pid)  # both do it, so that neither has to wait for the other
            except OSError:
                pass

    def prepare(self, plan: bytes) -> None:
        """Tell it what to become; from here on the renewer may start it."""
        self._briefing.give(plan)
        self._gate.permit(Parked(self.pid, self.pid if self.own_group else 0))

    def started(self) -> None:
        """The renewer has ordered it to start; it may still be on its way to the exec."""
        self._is_parked = False

    def check_exec(self, command: Command) -> None:
        """Once it has ended. Raises CommandNotFound, CommandNotExecutable, InternalError when there was no exec."""
        answer = os.read(self._answer, 5)
        os.close(self._answer)
        if not answer.startswith(EXEC):
            raise InternalError("the process that waited to become COMMAND was killed; nothing was started")
        if errno_of_exec := answer.removeprefix(EXEC):
            code = int.from_bytes(errno_of_exec, "little")
            kind = CommandNotFound if code in (errno.ENOENT, errno.ENOTDIR) else CommandNotExecutable
            raise kind(f"{command.shown}: {os.strerror(code)}")

    def dismiss(self) -> None:
        """There will be no child. Does nothing once it was started."""
        if not self._is_parked:
            return
        self._is_parked = False
        os.kill(self.pid, signal.SIGKILL)  # it would end by itself if it were not stopped
        os.close(self._answer)
        os.waitpid(self.pid, 0)
