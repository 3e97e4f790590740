"""The command's process before it is the command: forked first of all, told what to become, held before its exec.

So, when the grant comes, neither the fork nor entering a control group (a dozen milliseconds) has to be waited for. All
that can be is done before the order to start; what comes behind it is waited for by whoever wants the lock.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import NoReturn

from ..clock import boottime
from ..environment import add_grant, of_child
from .briefing import Briefing
from .cgroup import ControlGroup
from .command import execute
from .gate import Links
from .linux import die_with_parent
from .naming import name_process
from .plan import Plan
from .signals import Signals

EXEC = b"x"
"""Said before the exec: without it the command cannot have run."""


def run(
    supervisor: int,
    briefing: Briefing,
    links: Links,
    signals: Signals,
    answer: int,
    own_group: bool,
    cgroup: ControlGroup | None,
) -> NoReturn:
    """Never returns. ``answer`` gets EXEC, and behind it the errno of an exec that failed.

    It dies with the supervisor, and at once if that is dead already; it ends by itself when nothing is to be started.
    The supervisor must have one thread: the parent's death signal comes when the THREAD that forked ends, and only then
    is it safe to run Python between fork and exec.
    """
    code = errno.ENOEXEC
    try:
        die_with_parent()
        if os.getppid() != supervisor:
            os._exit(125)
        links.channel.close()  # or the renewer would not see the supervisor's end before ours
        name_process("distlock-parked")
        if own_group:
            os.setpgid(0, 0)
        if cgroup:
            cgroup.enter()
        content = briefing.receive()
        if content is None:
            os._exit(125)
        plan = Plan.from_bytes(content)
        environment = of_child(plan.caller_environment, name=plan.name, owner=plan.owner)
        signals.restore_dispositions()
        order = links.gate.await_order()
        if order is None:
            os._exit(125)
        add_grant(environment, order.token, order.ttl, order.lease_file, order.holder_index)
        os.write(answer, EXEC)
        signals.restore_mask()  # here it may die, or stop, of what was sent to it meanwhile
        if boottime() >= links.deadline.get():  # it was stopped, or the supervisor was
            os.kill(os.getpid(), signal.SIGKILL)
        code = execute(plan.command, environment)
    finally:
        os.write(answer, code.to_bytes(4, "little"))
        os._exit(125)
