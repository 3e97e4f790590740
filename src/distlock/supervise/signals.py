"""Signals: all of the run's set stay blocked and are fetched one by one, with their sender.

A handler does not tell who sent a signal; siginfo does, and the supervisor must know whether the terminal has given
the same signal to the child already. Blocked from the beginning, none is lost between two steps either.
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

FORWARDED = frozenset({signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2})
"""The child gets these; before there is a child they mean: leave the queue and die of it."""
JOB_CONTROL = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_SET = FORWARDED | JOB_CONTROL | {signal.SIGCONT, signal.SIGCHLD, signal.SIGIO}
_OVERWRITTEN_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


class Signals:
    """Blocks the set for the process; remembers what the child must get back."""

    def __init__(self) -> None:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SET)
        self._ignored = frozenset(s for s in _SET if signal.getsignal(s) is signal.SIG_IGN)
        # A parent that ignores SIGCHLD would let the kernel reap our child, and its exit status would be lost.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def next(self, timeout: float) -> signal.struct_siginfo | None:
        """The next signal that is not ignored, or None after ``timeout`` seconds, or earlier for SIGCHLD and SIGIO,
        which only wake."""
        info = signal.sigtimedwait(_SET, max(0.0, timeout))
        if info is None or info.si_signo in (signal.SIGCHLD, signal.SIGIO) or info.si_signo in self._ignored:
            return None
        return info

    def restore_in_child(self) -> None:
        """Mask and dispositions."""
        self.restore_dispositions()
        self.restore_mask()

    def restore_dispositions(self) -> None:
        """As distlock found them, for the child; the mask still keeps all away. One thing cannot be known: CPython sets
        SIGPIPE and SIGXFSZ to ignored before any code of ours runs, so they go back to the default even if the caller
        ignored them."""
        for number in _OVERWRITTEN_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        for number in FORWARDED:
            if number not in self._ignored:
                signal.signal(number, signal.SIG_DFL)
        if signal.SIGCHLD in self._ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def restore_mask(self) -> None:
        """As distlock found it, for the child: what was sent to it meanwhile reaches it now."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def restore_in_renewer(self) -> None:
        """The renewer lives through what ends a job (a TERM to a whole cgroup must not end the renewals while the
        child cleans up) and ends by end of file or order of the supervisor."""
        for number in FORWARDED | JOB_CONTROL:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask - (FORWARDED | JOB_CONTROL))


def stop_self(number: int = signal.SIGSTOP) -> None:
    """Stop as the child was stopped, so that the shell sees a job stopped by the same signal. That one may be ignored,
    or stop nothing in an orphaned process group: SIGSTOP then."""
    if number in JOB_CONTROL:
        ours = signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})  # here it stops
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        signal.signal(number, ours)
        if signal.SIGCONT in signal.sigpending():
            return
    os.kill(os.getpid(), signal.SIGSTOP)


def end_like(status: int) -> NoReturn:
    """End this process as the wait status says: the same code, or death by the same signal. PID 1 cannot die of a
    signal of its own and exits with 128+N, as a shell would report it."""
    if os.WIFSIGNALED(status):
        from .linux import dump_no_core

        number = os.WTERMSIG(status)
        dump_no_core()
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.WEXITSTATUS(status))
