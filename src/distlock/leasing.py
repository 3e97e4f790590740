"""What every renewer does, whoever it works for: ask for the lease, give it back."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable
from typing import NamedTuple

from .acquisition import Acquisition, Waiting
from .backends.base import (
    SUCCESS,
    Backend,
    Client,
    DistlockError,
    Grant,
    LockState,
    Mark,
    Request,
    Safety,
    Unavailable,
    Unmarked,
)
from .clock import boottime
from .renewal import Renewal
from .requirement import check_class
from .timeouts import RELEASE, REQUEST


class Wanted(NamedTuple):
    """One lease that somebody wants, and how it is to be waited for."""

    name: str
    owner: str
    ttl: float
    pid: int
    """Of the process that the lock is for."""
    command: str
    label: str | None
    require: Safety | None
    backend_shown: str
    wait: float | None
    jitter: float
    explain: bool
    """Whether a conflict will be shown to anybody: describing the holder costs a request."""
    outer_owners: tuple[str, ...]
    impatient: bool = False
    max_holders: int = 1


def acquire(
    backend: Backend,
    wanted: Wanted,
    cancel: int,
    on_waiting: Callable[[LockState], None] | None = None,
    on_asking: Callable[[], None] | None = None,
) -> Grant:
    """Raises Busy, NestedRun, OtherHolders, Unavailable, Refused; Cancelled once ``cancel`` is readable."""
    client = Client(
        owner=wanted.owner,
        host=os.uname().nodename,
        pid=wanted.pid,
        user=user_name(),
        command=wanted.command,
        label=wanted.label,
        since=time.time(),
    )
    required = wanted.require
    qualify: Callable[[], None] | None = None
    if required:
        qualify = lambda: check_class(backend, wanted.backend_shown, required, REQUEST)  # noqa: E731
    return Acquisition(
        backend,
        Request(wanted.name, wanted.ttl, client, wanted.max_holders),
        Waiting(wanted.wait, wanted.jitter, wanted.outer_owners, wanted.impatient),
        cancel,
        boottime,
        on_asking=on_asking,
        qualify=qualify,
        explain=wanted.explain,
        on_waiting=on_waiting,
    ).run()


def give_back(
    backend: Backend,
    renewal: Renewal,
    before: Callable[[], None],
    *,
    patience: float = RELEASE,
    marks: Callable[[], tuple[Mark, ...]] = tuple,
    keep_for: float = 0.0,
    told_lost: bool = False,
) -> str:
    """Why the lock could not be released, or "". Nothing is sent for a lease that is lost, but for one that an operator
    has taken away: nobody else gets that before. ``before`` is called when no renewal can follow any more, after
    ``patience`` seconds for one that is under way, and the lease is still there: nobody who asks about it must find one
    that is no more. ``told_lost``: the supervisor has seen the lease end, which the renewal may not have done yet.
    Raises Unmarked: it was released without its ``marks``."""
    quiet = renewal.stop(patience)
    before()
    if (renewal.lost or (told_lost and renewal.over)) and not renewal.revoked:
        return ""
    try:
        if not quiet:
            raise Unavailable("a renewal is still unanswered")
        written = marks()
        backend.release(renewal.grant, RELEASE, written, 0.0 if renewal.lost else keep_for)
        for mark in written:
            # Not written either if the lock was no longer ours: somebody removed it just before.
            if mark.slot != SUCCESS and backend.marked(renewal.grant.name, mark.slot, REQUEST) is None:
                raise Unmarked("the lock was not ours any more")
    except Unmarked:
        raise
    except DistlockError as error:
        return str(error)
    return ""


def user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
