"""While the child runs: one loop over signals, the clock, the renewer and the child's end.

The clock is looked at first after every wake-up, so that after a freeze nothing else comes before the kill. Nothing
is written before a kill either: stderr may be a full pipe that nobody reads.
"""

import os
import signal
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..clock import TICK, boottime
from ..notices import cannot_kill, say_if_ready
from . import tree
from .cgroup import ControlGroup
from .plan import Plan
from .signals import FORWARDED, JOB_CONTROL, Signals, stop_self
from .wire import Channel, Kind, Message, SharedDeadline

_STUBBORN_AFTER = 1.0
_LEFTOVERS_STOPPED = "what COMMAND left running was stopped"


class Child(NamedTuple):
    """The started command."""

    pid: int
    own_group: bool
    """Whether it leads a process group; at a terminal it shares the supervisor's."""
    cgroup: ControlGroup | None


class Holding:
    """``status`` is the child's wait status, ``lost`` why the lease was, or None."""

    def __init__(
        self,
        plan: Plan,
        signals: Signals,
        channel: Channel,
        deadline: SharedDeadline,
        renewer: int,
        child: Child,
    ) -> None:
        self._plan = plan
        self._signals = signals
        self._channel = channel
        self._deadline = deadline
        self._child = child.pid
        self._own_group = child.own_group
        self._cgroup = child.cgroup
        self._not_of_the_run = plan.strangers | {renewer}
        self._child_status: int | None = None
        self._stopping_since: float | None = None
        self._told: str | None = None
        self._last_trouble = ""
        self._run_until = float("inf") if plan.max_run is None else boottime() + plan.max_run
        self.lost: str | None = None
        self.overran = False
        """It was stopped because of --max-run; ``lost`` counts more."""
        self.what_was_stopped = "COMMAND was stopped"
        self.unsaid: list[str] = []

    @property
    def status(self) -> int:
        assert self._child_status is not None
        return self._child_status

    def until_the_end(self, early: Sequence[signal.struct_siginfo] = ()) -> None:
        """``early`` are signals that came while the child was being started. Whatever goes wrong in here, the tree is
        dead before the error leaves."""
        try:
            for info in early:
                self._forward(info)
            while self._child_status is None:
                self._step(self._forward)
            self._lost_while_nobody_looked()
            self._end_descendants()
        except BaseException:
            self._kill_all()
            raise

    def _step(self, on_signal: Callable[[signal.struct_siginfo], object]) -> None:
        info = self._signals.next(min(TICK, self._next_deadline() - boottime()))
        self._look_at_clock()
        self._reap()  # before a signal is passed on: a child that has just ended takes none any more
        if info is not None:
            on_signal(info)
        self._look_at_messages()

    # -- the clock ---------------------------------------------------------------------------------------------------

    def _next_deadline(self) -> float:
        if self._stopping_since is not None:
            return self._kill_at()
        return float("-inf") if self._told else min(self._deadline.get() - self._plan.grace, self._run_until)

    def _kill_at(self) -> float:
        assert self._stopping_since is not None
        return min(self._deadline.get(), self._stopping_since + self._plan.grace)

    def _look_at_clock(self) -> None:
        if self._stopping_since is None and boottime() >= self._next_deadline():
            self._reap()
            if self._child_status is not None and (self._plan.descendants in (None, "leave") or not self._living()):
                return  # it ended by itself, in time
            self._stopping_since = boottime()
            self.overran = not self._is_lost()
            self._stop_all(self._plan.kill_signal)
            self._channel.send(Message(Kind.STOPPED))
        if self._stopping_since is not None:
            if self.lost is None and self._is_lost():
                self.lost = self._why()
            if boottime() >= self._kill_at():
                self._kill_all()

    def _is_lost(self) -> bool:
        return self._told is not None or boottime() >= self._deadline.get() - self._plan.grace

    def _lost_while_nobody_looked(self) -> None:
        """This process was stopped, past the deadline: the renewer has ended the child in its place, or nobody has."""
        if boottime() >= self._run_until + self._plan.grace and os.WIFSIGNALED(self.status):
            self.overran = True
        if self.lost is None and boottime() >= self._deadline.get():
            self.lost = self._why()
            if not os.WIFSIGNALED(self.status):
                self.what_was_stopped = "COMMAND ended by itself, perhaps too late"

    def _why(self) -> str:
        self._look_at_messages()
        if self._channel.peer_is_gone and not self._told:
            return f"the renewer is dead{self._last_trouble}"
        return self._told or f"it could not be renewed in time{self._last_trouble}"

    # -- the tree ----------------------------------------------------------------------------------------------------

    def _living(self) -> list[tree.Process]:
        return tree.descendants(os.getpid(), self._not_of_the_run)

    def _stop_all(self, number: int) -> None:
        """A stopped process does not act on the stop signal before it is continued."""
        living = self._living()
        tree.send(living, number)
        tree.send(living, signal.SIGCONT)

    def _kill_all(self) -> None:
        since = boottime()
        pause = 0.001
        while living := self._living():
            if self._cgroup:
                self._cgroup.kill()
            tree.send(living, signal.SIGKILL)
            self._reap()
            time.sleep(pause)
            if pause < 0.05 and boottime() - since > _STUBBORN_AFTER:
                pause = 0.05
                self._say(0, cannot_kill([process.pid for process in living]))
        self._reap()

    def _end_descendants(self) -> None:
        """What the child left running. On a lost lease everything dies, always."""
        policy = self._plan.descendants
        if self.lost is not None or self.overran:
            self._await_descendants()
        elif policy is None:
            if self._plan.verbosity >= 0 and (left := self._left_in_group()):
                pids = " ".join(str(process.pid) for process in left)
                self.unsaid.append(
                    f"COMMAND ended and left {len(left)} of its processes running without the lock (pid {pids}); "
                    "--descendants says what to do with such"
                )
        elif policy == "wait":
            self.what_was_stopped = _LEFTOVERS_STOPPED
            self._await_descendants()
        elif policy == "kill":
            self.what_was_stopped = _LEFTOVERS_STOPPED
            self._stop_all(self._plan.kill_signal)
            self._await_descendants(until=boottime() + self._plan.grace)
            self._kill_all()

    def _left_in_group(self) -> list[tree.Process]:
        if self._own_group and not tree.group_exists(self._child):
            return []  # nearly always, and a twentieth of the work
        return tree.in_group(self._child if self._own_group else os.getpgrp(), among=self._living())

    def _await_descendants(self, until: float = float("inf")) -> None:
        while self._living() and boottime() < until:
            self._step(lambda info: tree.send(self._living(), info.si_signo))

    def _reap(self) -> None:
        """The child, and the orphans that came to us as their subreaper."""
        stopped = 0
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid != self._child:
                continue
            if os.WIFSTOPPED(status):
                stopped = os.WSTOPSIG(status)
            else:
                self._child_status = status
        if self._child_status is None and self._stopping_since is None and self._stop_is_the_shells(stopped):
            stop_self(stopped)  # the renewer goes on meanwhile

    def _stop_is_the_shells(self, number: int) -> bool:
        """Whether the shell must see a stopped job: so a key stops it, or a background job that reads. A SIGSTOP is
        somebody's who means the child alone and will continue it alone, unless the child is an interactive shell (it
        has left our process group) that stops itself: with its ``suspend`` the terminal would be nobody's."""
        if number == signal.SIGSTOP:
            return not self._own_group and os.getpgid(self._child) != os.getpgrp()
        return number in JOB_CONTROL

    # -- signals and messages ----------------------------------------------------------------------------------------

    def _forward(self, info: signal.struct_siginfo) -> None:
        """To the direct child, once. In a shared process group the terminal has signalled it already, and so has a
        member of the tree that signals its own group."""
        number = info.si_signo
        if self._child_status is not None:
            if self._plan.descendants == "wait":
                tree.send(self._living(), number)
            return
        if number == signal.SIGCONT and self._own_group:
            self._signal_child(number, os.killpg)
        elif number == signal.SIGCONT:
            if not JOB_CONTROL & signal.sigpending():  # a key that came since has stopped the child again
                self._signal_child(number)
        elif number in FORWARDED | JOB_CONTROL:
            by_process = info.si_code <= 0
            if self._own_group or (by_process and not self._is_ours(info.si_pid)):
                self._signal_child(number)

    def _signal_child(self, number: int, how: Callable[[int, int], None] = os.kill) -> None:
        try:
            how(self._child, number)
        except ProcessLookupError:
            pass  # it has left its group
        except PermissionError:  # set-uid: the caller could not have signalled it either
            self._say(0, f"cannot pass {signal.Signals(number).name} on to COMMAND: it belongs to another user")

    def _is_ours(self, pid: int) -> bool:
        return pid == self._child or any(process.pid == pid for process in self._living())

    def _look_at_messages(self) -> None:
        for message in self._channel.receive():
            if message.kind is Kind.LOST:
                self._told = message.text
            elif message.kind in (Kind.TROUBLE, Kind.FAILED):
                self._last_trouble = f" ({message.text})"
                self._say(1, message.text)
            elif message.kind is Kind.NOTE:
                self._say(message.first, message.text)

    def _say(self, verbosity: int, text: str) -> None:
        if self._plan.verbosity >= verbosity and not say_if_ready(text):
            self.unsaid.append(text)
