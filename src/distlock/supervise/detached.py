"""The renewer's own surroundings: apart from the caller's session, streams and descriptors, and what it tells of us."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import TYPE_CHECKING

from ..account import Account
from ..clock import boottime
from .naming import name_process
from .wire import LOWEST_DESCRIPTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .plan import Plan
    from .signals import Signals

_ACCOUNTING = 5.0


def detach(ours: Sequence[int], signals: Signals) -> int:
    """A session of its own, nothing of the caller's. Gives a descriptor of the caller's stderr for last words; what
    libraries write to theirs is not for the user."""
    os.setsid()
    signals.restore_in_renewer()
    name_process("distlock-renew")
    try:
        stderr = fcntl.fcntl(2, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR)
    except OSError:
        stderr = -1  # closed by the caller
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    # The caller's other descriptors are not ours to keep open: somebody may wait for their end of file.
    kept = sorted({*ours, stderr} - {-1})
    for low, high in zip([2, *kept], [*kept, os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
    return stderr


def account_of(plan: Plan, supervisor: int, note: Callable[[str], None]) -> Account:
    return Account(
        plan.keeping,
        name=plan.name,
        backend=plan.backend_shown,
        owner=plan.owner,
        pid=supervisor,
        label=plan.label,
        ttl=plan.ttl,
        grace=plan.grace,
        clock=boottime,
        note=note,
        tells_index=plan.max_holders is not None,
    )


def limit_accounting(stderr: int) -> None:
    """Somebody may wait for the end of file of what the caller has as stderr; and a file system that hangs must not
    keep this process for ever: the alarm ends it as it is."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in {2, stderr} - {-1}:
        os.dup2(null, descriptor)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, _ACCOUNTING)
