"""What the plan of a run means for its lease, from the request to what is left behind."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import window
from ..acquisition import pause
from ..backends.base import DistlockError
from ..clock import TICK, boottime
from ..durations import format_duration
from ..environment import outer_owners
from ..errors import Cancelled
from ..leasing import Wanted
from ..quoting import quoted
from .gate import Order
from .wire import Kind, Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..backends.base import Backend, Grant, Mark
    from ..leasefile import KeptLeaseFile
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
        max_holders=plan.max_holders or 1,
    )


def use_window(plan: Plan, backend: Backend, grant: Grant, channel: Channel) -> None:
    """Right after the grant. Raises Skipped, and what prevented a look; Cancelled before the next question when the
    supervisor wants the lock no more. It is given back then."""

    def still_wanted() -> None:
        pause(0, channel.reading)

    if plan.window.is_asked_for:
        channel.send(Message(Kind.HELD))
    try:
        window.check(plan.window, backend, grant, still_wanted)
        window.close_at_start(plan.window, backend, grant, still_wanted)
    except (DistlockError, Cancelled):
        with suppress(DistlockError):
            backend.release(grant, window.request_timeout(grant))
        raise


def await_lease_file(file: KeptLeaseFile, timeout: float, channel: Channel) -> None:
    """Until the disk has it, which a state directory that hangs never does; no longer than the lock is wanted."""
    until = boottime() + timeout
    if file.settle(TICK):
        return
    channel.send(Message(Kind.HELD))
    while not file.settle(TICK) and boottime() < until:
        if select.select([channel.reading], [], [], 0)[0]:
            return


def order(plan: Plan, grant: Grant, lease_file: str) -> Order:
    return Order(grant.token, grant.ttl, lease_file, None if plan.max_holders is None else grant.holder_index)


def bare(plan: Plan) -> Order:
    """The order to start without a lock."""
    return Order(None, plan.ttl, "", None)


def marks(plan: Plan, ran_for: float | None) -> tuple[Mark, ...]:
    """What the release writes; ``ran_for`` is None of a run that has not succeeded."""
    return () if ran_for is None else window.marks_of_success(plan.window, ran_for)


def keep_for(
    plan: Plan, backend: Backend, granted_at: float, channel: Channel, note: Callable[[int, str], None]
) -> float:
    """Seconds for which the lock is to outlive this process, which waits for them where the engine keeps no lock."""
    until = granted_at + plan.min_hold
    if until > boottime() and not backend.keeps:
        left = format_duration(round(until - boottime(), 1))
        note(1, f"{quoted(plan.name)}: held for another {left}: this backend keeps no lock without its holder")
        _wait_out(until, channel)
        return 0.0
    return max(0.0, until - boottime())


def _wait_out(until: float, channel: Channel) -> None:
    """Ends early when the supervisor asks a second time, or is gone."""
    look = select.poll()
    look.register(channel.reading, select.POLLIN)
    while (left := until - boottime()) > 0:
        look.poll(min(left, TICK) * 1000)
        if channel.receive() or channel.peer_is_gone:
            return
