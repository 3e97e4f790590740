"""S, the supervisor: the process that cron, systemd or the shell knows.

One thread and no backend library. It is the child's parent, so that status, stops and signals need no relay, and the
subreaper of all below. It keeps the same deadline as the renewer and ends the tree in time when that one is dead,
stopped or stuck.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time

from ..backends.base import LeaseLost, Unavailable
from ..clock import TICK, boottime
from ..errors import InternalError
from ..notices import say, say_if_ready
from ..quoting import quoted
from . import tree
from .cgroup import ControlGroup
from .child import ParkedChild
from .holding import Child, Holding
from .linux import become_subreaper
from .plan import Plan
from .signals import FORWARDED, JOB_CONTROL, Signals, stop_self
from .wire import FAILURES, Channel, Kind, Message, SharedDeadline

_CANCEL = 0.8
"""Seconds for the renewer to leave the queue when a signal ends the waiting."""
_ANSWER = 15.0
"""Seconds beyond the wait after which a renewer that says nothing is given up."""
_RELEASE = 5.0
_RELEASE_WHEN_LOST = 0.5


class Supervisor:
    """One run, from the fork of the renewer on."""

    def __init__(self, plan: Plan, signals: Signals, channel: Channel, deadline: SharedDeadline, renewer: int) -> None:
        self._plan = plan
        self._signals = signals
        self._channel = channel
        self._deadline = deadline
        self._renewer = renewer

    def run(self) -> int:
        """The wait status to end with: the child's, or death by the signal that ended the waiting.

        Raises LeaseLost when the child was stopped, and what prevented it when there was no child.
        """
        child = self._prepare()
        try:
            granted = self._await_grant()
            return granted if isinstance(granted, int) else self._hold(granted, child)
        finally:
            child.dismiss()
            if self._cgroup:
                self._cgroup.remove()

    def _hold(self, granted: Message, child: ParkedChild) -> int:
        holding = None
        try:
            holding = self._start(granted, child)
            holding.until_the_end()
            if holding.lost is None:
                child.check_exec()
        finally:
            trouble = self._release(lost=holding is not None and holding.lost is not None)
        for text in (*holding.unsaid, *self._release_notice(holding, trouble)):
            say(text)
        if holding.lost is not None:
            raise LeaseLost(f"{quoted(self._plan.name)}: lease lost: {holding.lost}; {holding.what_was_stopped}")
        return holding.status

    def _prepare(self) -> ParkedChild:
        """All that does not need the lock, while the renewer asks for it."""
        become_subreaper()
        reading = self._channel.reading
        fcntl.fcntl(reading, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)  # SIGIO wakes us
        group = ControlGroup.of(self._plan.owner)
        self._cgroup = group if group and group.create() else None
        # With a terminal the child gets no process group of its own: it would be stopped when it reads, and Ctrl-C
        # would not reach it.
        self._own_group = not _has_terminal()
        return ParkedChild(
            self._plan, self._signals, self._channel, self._deadline, own_group=self._own_group, cgroup=self._cgroup
        )

    def _await_grant(self) -> Message | int:
        plan = self._plan
        given_up_at = None if plan.wait is None else boottime() + plan.jitter + plan.wait + _ANSWER
        while True:
            for message in self._channel.receive():
                if message.kind is Kind.GRANTED:
                    return message
                if message.kind is Kind.FAILED:
                    self._await_renewer(_CANCEL)
                    raise FAILURES[message.first](message.text)
                if message.kind is Kind.NOTE:
                    say_if_ready(message.text)  # not worth a late start
            if self._channel.peer_is_gone:
                raise InternalError("the renewer ended before it got the lock; nothing was started")
            if given_up_at is not None and boottime() >= given_up_at:
                self._end_renewer()
                raise Unavailable("the renewer does not answer; nothing was started")
            info = self._signals.next(TICK)
            if info and info.si_signo in FORWARDED:
                self._channel.send(Message(Kind.RELEASE))
                self._await_renewer(_CANCEL)
                return info.si_signo  # as a wait status: death by this signal
            if info and info.si_signo in JOB_CONTROL:
                stop_self(info.si_signo)

    def _start(self, granted: Message, child: ParkedChild) -> Holding:
        """Raises LeaseLost, CommandNotFound, CommandNotExecutable: nothing was started then."""
        plan = self._plan
        if boottime() >= self._deadline.get() - plan.grace:
            raise LeaseLost(f"{quoted(plan.name)}: lease lost before COMMAND was started")
        # First: from here on the renewer ends it too, whatever becomes of us.
        self._channel.send(Message(Kind.CHILD, child.pid, child.pid if self._own_group else 0))
        token = None if granted.first < 0 else granted.first
        child.start(token, ttl=granted.second / 1e6, lease_file=granted.text)
        started = Child(child.pid, self._own_group, self._cgroup)
        return Holding(plan, self._signals, self._channel, self._deadline, self._renewer, started)

    def _release(self, lost: bool) -> str | None:
        """Let the renewer give the lock back; why it could not, or None."""
        self._channel.send(Message(Kind.RELEASE))
        trouble: str | None = "the renewer was dead" if self._channel.peer_is_gone else "no answer in time"
        until = time.monotonic() + (_RELEASE_WHEN_LOST if lost else _RELEASE)
        while not self._channel.peer_is_gone and time.monotonic() < until:
            for message in self._channel.receive():
                if message.kind is Kind.RELEASED:
                    trouble = message.text or None
            if not self._channel.peer_is_gone:
                self._signals.next(min(TICK, until - time.monotonic()))
        self._end_renewer()
        return trouble

    def _release_notice(self, holding: Holding, trouble: str | None) -> list[str]:
        if trouble is None or holding.lost is not None:
            return []
        return [f"{quoted(self._plan.name)}: the lock could not be released ({trouble}); it ends with its lease"]

    def _await_renewer(self, seconds: float) -> None:
        """Until it has ended by itself; then by force."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._channel.peer_is_gone:
            self._channel.receive()
            time.sleep(0.001)
        self._end_renewer()

    def _end_renewer(self) -> None:
        """End of file on its pipe means that it is exiting; if it is not, it is stopped or stuck."""
        if not self._channel.peer_is_gone:
            tree.send([process] if (process := tree.identify(self._renewer)) else [], signal.SIGKILL)
        try:
            os.waitpid(self._renewer, 0)
        except ChildProcessError:
            pass  # reaped with the orphans


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
