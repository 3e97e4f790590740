"""One process becomes three, first of all: what each needs it loads by itself, while the options are being read."""

from __future__ import annotations

import os
import signal

from .briefing import Briefing
from .cgroup import ControlGroup
from .child import ParkedChild
from .gate import Gate, Links
from .plan import Plan
from .signals import Signals
from .tree import children
from .wire import SharedDeadline, channels, pipe


class Launch:
    """The renewer and the parked child of a run whose options are not known yet. They do nothing before ``run``."""

    def __init__(self) -> None:
        self.signals = Signals()
        self.strangers = frozenset(children(os.getpid()))
        self.owner = os.urandom(16).hex()
        group = ControlGroup.of(self.owner)
        self._cgroup = group if group and group.create() else None
        mine, theirs = channels()
        gate = Gate()
        self._links = Links(mine, SharedDeadline(), gate)
        self._briefing = Briefing()
        supervisor = os.getpid()
        try:
            self._renewer = os.fork()
        except BaseException:
            self._remove_group()
            raise
        if self._renewer == 0:
            try:
                mine.close()
                self._briefing.is_for_me()
                from .renewer_process import run

                run(supervisor, self._briefing, self._links._replace(channel=theirs), self.signals)
            finally:
                os._exit(1)
        theirs.close()
        gate.in_supervisor()
        self._is_idle = True
        try:
            self._child = self._parked(supervisor)
        except BaseException:
            self._end_renewer()
            self._remove_group()
            raise

    def _parked(self, supervisor: int) -> ParkedChild:
        briefing = Briefing()
        own_group = not _has_terminal()
        answer, answering = pipe()  # close-on-exec: end of file means that the exec has happened
        pid = os.fork()
        if pid == 0:
            try:
                self._briefing.close()
                briefing.is_for_me()
                from .parked import run

                run(supervisor, briefing, self._links, self.signals, answering, own_group, self._cgroup)
            finally:
                os._exit(125)
        os.close(answering)
        self._links.gate.child_is_forked()
        return ParkedChild(pid, briefing, self._links.gate, answer, own_group=own_group)

    def run(self, plan: Plan) -> int:
        """Acquire, start the child, hold, stop or await it, release; what Supervisor.run returns and raises."""
        self._is_idle = False
        self._briefing.give(plan.to_bytes())
        from .supervisor import Supervisor

        return Supervisor(plan, self.signals, self._links, self._renewer, self._child, self._cgroup).run()

    def dismiss(self) -> None:
        """There is nothing to run: what was typed cannot be meant, or help was asked for."""
        if self._is_idle:
            self._is_idle = False
            self._child.dismiss()
            self._end_renewer()
            self._remove_group()

    def _remove_group(self) -> None:
        if self._cgroup:
            self._cgroup.remove()

    def _end_renewer(self) -> None:
        os.kill(self._renewer, signal.SIGKILL)
        os.waitpid(self._renewer, 0)


def _has_terminal() -> bool:
    """With a terminal the child gets no process group of its own: it would be stopped when it reads, and Ctrl-C would
    not reach it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
