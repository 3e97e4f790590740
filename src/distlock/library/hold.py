"""``distlock.hold``: a context in which this process holds a lock."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType

from ..backend_choice import Chosen, choose
from ..backends.base import ConfigurationError, LeaseLost, Safety, Unavailable
from ..clock import boottime
from ..config import load
from ..config_keys import Unchecked
from ..deadline import SHORTEST_TTL, default_grace
from ..durations import MAX_SECONDS
from ..environment import outer_owners
from ..errors import InternalError, UsageError
from ..holders import MOST_HOLDERS
from ..leasing import Wanted
from ..names import check_name
from ..quoting import quoted
from ..requirement import CLASSES, refuse_embedded_default
from ..supervise.wire import FAILURES, Kind, Message
from ..timeouts import ANSWER, CANCEL, RELEASED
from .lease import Lease
from .order import Order
from .process import RenewerProcess
from .watch import Watch

_RELEASE_WHEN_LOST = 2.0


class _Mark:
    """One context around this code; ``owner`` is empty once it has been left."""

    def __init__(self, owner: str) -> None:
        self.owner = owner


_inside: ContextVar[tuple[_Mark, ...]] = ContextVar("distlock_inside", default=())
"""What this code would wait for in vain. A context may be left by another thread than the one that entered it, so marks
are cleared and not taken off."""


def hold(
    name: str,
    *,
    ttl: float = 30.0,
    wait: float | None = None,
    nonblock: bool = False,
    backend: str | None = None,
    require: Safety | None = None,
    label: str | None = None,
    max_holders: int = 1,
) -> Hold:
    """A context that holds the lock ``name`` and gives a Lease.

    A process beside this one renews the lease each third of ``ttl`` (seconds, 3 at least). Leaving the context gives
    the lock back; so does the end of this process, also by SIGKILL.

    The body runs only if the lock was had. Otherwise entering raises Busy (not had within ``wait`` seconds, or at once
    with ``nonblock``; without either it waits without limit), Unavailable, Refused (login, or a backend below
    ``require``) or ConfigurationError. Arguments that cannot be meant raise UsageError, here. All are DistlockErrors.

    NOTHING IS STOPPED when the lease is lost: a thread can be told, not killed. ``lease.lost`` and
    ``lease.checkpoint()`` tell, and it is for the body to ask, before each side effect. A loss that nobody has asked
    about is raised as LeaseLost when the body has ended. Where the work is a command, ``distlock run`` stops it.

    ``backend``: a URL or the name of one in the configuration; else DISTLOCK_BACKEND, else the configuration's, else
    ``local:``. ``label``: free text shown to whoever waits.

    ``max_holders``: so many may hold the lock at once, each with a ``lease.holder_index`` of its own. Entering raises
    ConfigurationError (OtherHolders) while it is held by somebody who says another number.
    """
    if sys.platform != "linux":
        raise UsageError(f"distlock runs on Linux; this is {sys.platform}")
    if not isinstance(name, str):
        raise UsageError(f"a lock's name is a text, not {type(name).__name__}")
    lock = check_name(name)
    chosen, required = _where(lock, backend, require)
    ttl = _seconds("ttl", ttl)
    if ttl < SHORTEST_TTL:
        raise UsageError(f"ttl={ttl:g} is too short: below {SHORTEST_TTL:g}s an ordinary pause looks like a death")
    limit = None if wait is None else _seconds("wait", wait)
    if nonblock and limit:
        raise UsageError(f"nonblock and wait={limit:g} contradict each other")
    wanted = Wanted(
        name=lock,
        owner="",
        ttl=ttl,
        pid=0,
        command=next(iter(sys.argv), "") or "python",
        label=label,
        require=required,
        backend_shown=chosen.shown,
        wait=0.0 if nonblock else limit,
        jitter=0.0,
        explain=True,
        outer_owners=(),
        max_holders=_number("max_holders", max_holders, MOST_HOLDERS),
    )
    return Hold(Order(wanted, chosen.url, chosen.password, default_grace(ttl)))


def _where(lock: str, backend: str | None, require: Safety | None) -> tuple[Chosen, Safety | None]:
    """The backend as the command would choose it, and the highest class that anybody asks for."""
    config = load(None, Unchecked)
    chosen = choose(backend, config, lock)
    configured = config.setting("require", lock)
    classes = [require, chosen.require, configured.value if configured else None]
    for asked in classes:
        if asked is not None and asked not in CLASSES:
            where = configured.origin if configured and asked == configured.value else "require"
            fault = ConfigurationError if where != "require" else UsageError
            raise fault(f"{where}={asked!r} is none of {', '.join(CLASSES)}")
    required = next((known for known in reversed(CLASSES) if known in classes), None)
    if required == "correctness" and not chosen.is_named:
        refuse_embedded_default("require='correctness'", "backend=")
    return chosen, required


class Hold(AbstractContextManager[Lease]):
    """What ``hold`` returns: entered once."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._entered = False
        self._renewer: RenewerProcess | None = None
        self._watch: Watch | None = None
        self._mark = _Mark("")

    def __enter__(self) -> Lease:
        if self._entered:
            raise RuntimeError("this hold was entered before; each with statement needs a hold() of its own")
        self._entered = True
        around = tuple(mark for mark in _inside.get() if mark.owner)
        outer = (*outer_owners(os.environb), *(mark.owner for mark in around))
        # Only now: a program may fork between its call of hold() and here, and no two holdings have the same owner.
        wanted = self._order.wanted._replace(owner=os.urandom(16).hex(), pid=os.getpid(), outer_owners=outer)
        self._renewer = renewer = RenewerProcess(self._order._replace(wanted=wanted))
        try:
            granted = _await_grant(renewer, wanted.wait)
            self._watch = watch = Watch(renewer, boottime)
            token = None if granted.first < 0 else granted.first
            self._mark.owner = wanted.owner
            _inside.set((*around, self._mark))
            ttl = float(granted.text)  # as it was granted
            return Lease(wanted.name, wanted.owner, token, ttl, watch, granted.second)
        except BaseException:
            self._renewer = None
            renewer.release(CANCEL)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._watch is None or self._renewer is None or self._watch.is_forked:
            return
        wanted = self._order.wanted
        self._mark.owner = ""
        renewer, self._renewer = self._renewer, None
        broken = self._watch.end()
        trouble = renewer.release(RELEASED if broken is None else _RELEASE_WHEN_LOST)
        if broken is not None:
            loss = f"{quoted(wanted.name)}: lease lost: {broken}"
            if error is not None:
                error.add_note(f"distlock: {loss}")
            elif not self._watch.seen:
                raise LeaseLost(f"{loss}; nobody was stopped, and the body has not asked")
        elif trouble:
            logging.getLogger("distlock").warning(
                "%s: the lock could not be released (%s); it ends with its lease", quoted(wanted.name), trouble
            )


def _await_grant(renewer: RenewerProcess, wait: float | None) -> Message:
    """The message of the grant; raises what prevented it."""
    until = None if wait is None else boottime() + wait + ANSWER
    while True:
        gone = renewer.is_gone()
        for message in renewer.messages():
            if message.kind is Kind.GRANTED:
                return message
            if message.kind is Kind.FAILED:
                raise FAILURES[message.first](message.text)
        if gone:
            raise InternalError("the renewer ended before it got the lock")
        left = None if until is None else until - boottime()
        if left is not None and left <= 0:
            raise Unavailable("the renewer does not answer")
        renewer.await_news(left)


def _number(argument: str, value: object, greatest: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= greatest:
        return value
    raise UsageError(f"{argument}={value!r} is not a number from 1 to {greatest}")


def _seconds(argument: str, value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_SECONDS:
        return float(value)
    raise UsageError(f"{argument}={value!r} is not a number of seconds")
