"""S, the supervisor: the process that cron, systemd or the shell knows.

One thread and no backend library. It is the child's parent, so that status, stops and signals need no relay, and the
subreaper of all below. It keeps the same deadline as the renewer and ends the tree in time when that one is dead,
stopped or stuck.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time

from ..account import Inherited
from ..backends.base import LeaseLost, Unavailable
from ..clock import NEVER, TICK, boottime
from ..durations import format_duration
from ..errors import CommandNotExecutable, CommandNotFound, InternalError, MaxRunReached
from ..notices import say, say_if_ready
from ..quoting import quoted
from ..timeouts import ANSWER, CANCEL, RELEASED
from . import tree
from .cgroup import ControlGroup
from .child import ParkedChild
from .gate import Links
from .holding import Child, Holding
from .linux import become_subreaper
from .plan import Plan
from .signals import FORWARDED, JOB_CONTROL, Signals, stop_self
from .wire import FAILURES, Kind, Message

_ACCOUNT = 0.5
"""Seconds for which the end of a run waits for its record."""
_RELEASE_WHEN_LOST = 0.5
_OVERRAN = 124 << 8
"""As a wait status."""


class Supervisor:
    """One run, from the fork of the renewer on."""

    def __init__(
        self,
        plan: Plan,
        signals: Signals,
        links: Links,
        renewer: int,
        child: ParkedChild,
        cgroup: ControlGroup | None,
    ) -> None:
        self._plan = plan
        self._signals = signals
        self._channel, self._deadline, self._gate = links
        self._renewer = renewer
        self._child = child
        self._cgroup = cgroup
        self._granted = Inherited()
        self._is_held = False
        self._notes: list[str] = []
        self._early: list[signal.struct_siginfo] = []

    def run(self) -> int:
        """The wait status to end with: the child's, or death by the signal that ended the waiting.

        Raises LeaseLost when the child was stopped, and what prevented it when there was no child.
        """
        child = self._child
        try:
            self._prepare()
            ended_by = self._await_start()
            return self._hold(child) if ended_by is None else ended_by
        finally:
            child.dismiss()
            if self._cgroup:
                self._cgroup.remove()

    def _hold(self, child: ParkedChild) -> int:
        child.started()
        started = Child(child.pid, child.own_group, self._cgroup)
        holding = Holding(self._plan, self._signals, self._channel, self._deadline, self._renewer, started)
        end = Message(Kind.RELEASE, -1)
        try:
            holding.until_the_end(self._early)
            status = _OVERRAN if holding.overran else holding.status  # though it may have ended with 0: no success
            end = Message(Kind.RELEASE, status, int(holding.lost is not None), holding.lost or "")
            if holding.lost is None:
                child.check_exec(self._plan.command)
        except (CommandNotFound, CommandNotExecutable) as error:
            end = Message(Kind.RELEASE, (127 if isinstance(error, CommandNotFound) else 126) << 8)
            raise
        finally:
            trouble = self._release(end)
        for text in (*holding.unsaid, *self._release_notice(holding, trouble), *self._notes):
            say(text)
        if holding.lost is not None:
            raise LeaseLost(f"{quoted(self._plan.name)}: lease lost: {holding.lost}; {holding.what_was_stopped}")
        if holding.overran and self._plan.max_run is not None:
            limit = format_duration(self._plan.max_run)
            raise MaxRunReached(f"{quoted(self._plan.name)}: --max-run {limit} reached; {holding.what_was_stopped}")
        return holding.status

    def _prepare(self) -> None:
        """All that does not need the lock, while the renewer asks for it."""
        become_subreaper()
        reading = self._channel.reading
        fcntl.fcntl(reading, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)  # SIGIO wakes us
        self._child.prepare(self._plan.to_bytes())

    def _await_start(self) -> int | None:
        """Until the renewer has the lock and has ordered the child to start; or the wait status to end with. Whatever
        says that nothing was started takes the permission back first."""
        plan, since = self._plan, boottime()
        given_up_at = None if plan.wait is None else boottime() + plan.jitter + plan.wait + ANSWER
        while True:
            messages = self._channel.receive()
            for index, message in enumerate(messages):
                if message.kind is Kind.GRANTED:
                    self._channel.put_back(messages[index + 1 :])
                    self._granted = self._as_granted(message, since)
                    return None
                self._is_held |= message.kind is Kind.HELD
                if message.kind is Kind.FAILED and self._nothing_is_started():
                    self._await_account(messages[index:])
                    for text in self._notes:
                        say(text)
                    raise FAILURES[message.first](message.text)
                if message.kind is Kind.NOTE:
                    say_if_ready(message.text)  # not worth a late start
            if self._channel.peer_is_gone:
                if not self._nothing_is_started():
                    return None
                raise InternalError("the renewer ended before it got the lock; nothing was started")
            if given_up_at is not None and boottime() >= given_up_at and self._nothing_is_started():
                self._end_renewer()
                raise Unavailable("the renewer does not answer; nothing was started")
            info = self._signals.next(TICK)
            if info is None or info.si_signo not in FORWARDED | JOB_CONTROL:
                continue
            permission = self._gate.take()
            if permission is None:
                self._early.append(info)
            elif info.si_signo in FORWARDED:
                self._channel.send(Message(Kind.RELEASE, -1))
                self._await_renewer()
                return info.si_signo  # as a wait status: death by this signal
            else:
                stop_self(info.si_signo)
                self._gate.permit(permission)

    def _as_granted(self, message: Message, since: float) -> Inherited:
        token, index = (None if number < 0 else number for number in (message.first, message.second))
        return Inherited(boottime() - since, boottime(), token, index, is_locked=not self._is_open)

    @property
    def _is_open(self) -> bool:
        """--fail-open: the child runs without a lock."""
        return self._deadline.get() == NEVER

    def _nothing_is_started(self) -> bool:
        """And nothing will be."""
        return self._gate.take() is not None

    def _release(self, end: Message) -> str | None:
        """Let the renewer give the lock back; why it could not, or None."""
        self._channel.send(end)
        trouble: str | None = "the renewer was dead" if self._channel.peer_is_gone else "no answer in time"
        until = time.monotonic() + (_RELEASE_WHEN_LOST if end.second else RELEASED + self._plan.min_hold)
        while not self._channel.peer_is_gone and time.monotonic() < until:
            messages = self._channel.receive()
            for message in messages:
                if message.kind is Kind.RELEASED:
                    self._await_account(messages)
                    return message.text or None
            self._notes += [message.text for message in messages if message.kind is Kind.NOTE]
            if not self._channel.peer_is_gone:
                info = self._signals.next(min(TICK, until - time.monotonic()))
                if info and info.si_signo in FORWARDED:
                    self._channel.send(end)  # a lock that is held though the command has ended is given back now
        self._end_renewer()
        self._give_account(end)
        return trouble

    def _await_account(self, received: list[Message]) -> None:
        """The renewer has nothing to do any more but to record the run. It is left alone if that takes long: the job
        is done, and so is the lock."""
        until = time.monotonic() + _ACCOUNT
        while True:
            self._notes += [message.text for message in received if message.kind is Kind.NOTE]
            if self._channel.peer_is_gone:
                self._end_renewer()
                return
            if time.monotonic() >= until:
                return
            self._signals.next(min(TICK, until - time.monotonic()))
            received = self._channel.receive()

    def _give_account(self, end: Message) -> None:
        """In the place of a dead renewer."""
        from .detached import account_of

        account = account_of(self._plan, os.getpid(), self._notes.append)
        account.inherit(self._granted, end.first, end.text if end.second else None, is_open=self._is_open)
        keeper = threading.Thread(target=account.close, daemon=True)
        keeper.start()
        keeper.join(_ACCOUNT)

    def _release_notice(self, holding: Holding, trouble: str | None) -> list[str]:
        if trouble is None or holding.lost is not None:
            return []
        return [f"{quoted(self._plan.name)}: the lock could not be released ({trouble}); it ends with its lease"]

    def _await_renewer(self) -> None:
        """Until it has ended by itself; then by force. One that has the lock gets the time to give it back."""
        since = time.monotonic()
        while not self._channel.peer_is_gone:
            self._is_held |= any(message.kind is Kind.HELD for message in self._channel.receive())
            if time.monotonic() > since + (RELEASED if self._is_held else CANCEL):
                break
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
