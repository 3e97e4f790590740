"""One process becomes two. What each needs it loads behind the fork, at the same time as the other."""

from __future__ import annotations

import os

from .gate import Gate
from .plan import Plan
from .signals import Signals
from .wire import SharedDeadline, channels


def supervise(plan: Plan, signals: Signals) -> int:
    """Acquire, start the child, hold, stop or await it, release; what Supervisor.run returns and raises."""
    mine, theirs = channels()
    deadline = SharedDeadline()
    gate = Gate()
    supervisor = os.getpid()
    renewer = os.fork()
    if renewer == 0:
        try:
            mine.close()
            from .renewer import run

            run(plan, supervisor, theirs, deadline, gate, signals)
        finally:
            os._exit(1)
    theirs.close()
    gate.in_supervisor()
    from .supervisor import Supervisor

    return Supervisor(plan, signals, mine, deadline, gate, renewer).run()
