"""What the plan of a run means for its lease, from the request to what is left behind."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import window
from ..backends.base import DistlockError
from ..clock import TICK, boottime
from ..durations import format_duration
from ..environment import outer_owners
from ..leasing import Wanted
from ..quoting import quoted

if TYPE_CHECKING:
    from ..backends.base import Backend, Grant, Mark
    from .plan import Plan
    from .wire import Channel


def wanted(plan: Plan, supervisor: int) -> Wanted:
    return Wanted(
        name=plan.name,
        owner=plan.owner,
        ttl=plan.ttl,
        pid=supervisor,
        command=os.fsdecode(plan.command.words[0]),
        label=plan.label,
        require=plan.require,
        backend_shown=plan.backend_shown,
        wait=plan.wait,
        jitter=plan.jitter,
        explain=plan.explain_conflict,
        outer_owners=outer_owners(plan.caller_environment),
        impatient=plan.fail_open,
    )


def use_window(plan: Plan, backend: Backend, grant: Grant) -> None:
    """Right after the grant. Raises Skipped, and what prevented a look; the lock is given back then."""
    try:
        window.check(plan.window, backend, grant)
        window.close_at_start(plan.window, backend, grant)
    except DistlockError:
        with suppress(DistlockError):
            backend.release(grant, window.request_timeout(grant))
        raise


def marks(plan: Plan, ran_for: float | None) -> tuple[Mark, ...]:
    """What the release writes; ``ran_for`` is None of a run that has not succeeded."""
    return () if ran_for is None else window.marks_of_success(plan.window, ran_for)


def held_without_command(plan: Plan, seconds: float) -> str:
    left = format_duration(round(seconds, 1))
    return f"{quoted(plan.name)}: held for another {left}: this backend keeps no lock without its holder"


def wait_out(until: float, channel: Channel) -> None:
    """--min-hold where the engine keeps no lock. Ends early when the supervisor asks a second time, or is gone."""
    look = select.poll()
    look.register(channel.reading, select.POLLIN)
    while (left := until - boottime()) > 0:
        look.poll(min(left, TICK) * 1000)
        if channel.receive() or channel.peer_is_gone:
            return
