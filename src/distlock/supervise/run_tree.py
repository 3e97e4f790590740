"""The processes of a run as its renewer sees them, which is not their parent and may have to end them alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from ..clock import boottime
from . import tree
from .cgroup import ControlGroup

_STUBBORN_AFTER = 1.0


class RunTree:
    """All below one supervisor, and what is left of it when that is dead."""

    def __init__(self, owner: str, supervisor: int, strangers: frozenset[int]) -> None:
        self._owner = owner
        self._supervisor = supervisor
        self._supervisor_itself = tree.identify(supervisor)
        self._not_of_the_run = strangers | {os.getpid()}
        self._cgroup = ControlGroup.of(owner)
        self._known: set[tree.Process] = set()
        self.group = 0
        """The child's process group, if it has one of its own."""

    def supervisor_lives(self) -> bool:
        """It, and not a later process with its pid."""
        return self._supervisor_itself is not None and tree.is_alive(self._supervisor_itself)

    def await_supervisors_death(self) -> None:
        """Its files are closed a moment before its child gets the parent's death signal; only a supervisor that is a
        zombie has sent it. Until then a child could be alive that nobody has told us of."""
        while self.supervisor_lives():
            time.sleep(0.001)

    def look(self) -> None:
        """Remember who is there: by ancestry, which nobody can tell any more when the supervisor is dead."""
        self._known = set(self._below_supervisor())

    def _below_supervisor(self) -> list[tree.Process]:
        return tree.descendants(self._supervisor, self._not_of_the_run) if self.supervisor_lives() else []

    def _living(self) -> set[tree.Process]:
        """All of the run that can be found: by ancestry while the supervisor lives, and by what does not need it."""
        found = {process for process in self._known if tree.is_alive(process)}
        found.update(tree.with_owner(self._owner))
        if self.group:
            found.update(tree.in_group(self.group))
        if self._cgroup:
            found.update(self._cgroup.processes())
        found.update(self._below_supervisor())
        for process in list(found):
            found.update(tree.descendants(process.pid, self._not_of_the_run))
        return {process for process in found if process.pid not in (os.getpid(), self._supervisor)}

    def end(self, on_survivors: Callable[[list[int]], object]) -> None:
        """SIGKILL until nothing is left; who cannot be killed is told once, a second later."""
        self.end_control_group()  # also what only the group knows
        since = boottime()
        pause = 0.001
        while living := self._living():
            self._known |= living
            self.end_control_group()
            tree.send(living, signal.SIGKILL)
            time.sleep(pause)
            if pause < 0.05 and boottime() - since > _STUBBORN_AFTER:
                pause = 0.05
                on_survivors([process.pid for process in living])

    def end_control_group(self) -> None:
        if self._cgroup:
            self._cgroup.kill()

    def remove_control_group(self) -> None:
        """A supervisor that was killed cannot."""
        if self._cgroup:
            self._cgroup.remove()
