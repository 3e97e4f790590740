"""R, the renewer: gets the lease, keeps it, gives it back; ends the child's tree if the supervisor does not.

It runs in a session of its own. The main thread does nothing that can block for long: it watches the pipe from the
supervisor, the clock and the tree; the backend is used by the renewing thread. End of file on the pipe means that the
supervisor is dead: the tree is ended at once and the lock freed at once, not after the TTL.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from ..backend_url import probable_backend
from ..backends import open_backend, preload
from ..backends.base import (
    Backend,
    Client,
    DistlockError,
    Environment,
    Grant,
    LeaseLost,
    LockState,
    Request,
    Unavailable,
)
from ..clock import boottime
from ..environment import outer_owners
from ..errors import Cancelled, InternalError
from ..leasefile import KeptLeaseFile
from ..notices import cannot_kill, say_if_ready
from ..quoting import quoted
from ..renewal import Renewal, Schedule
from ..requirement import check_class
from ..session import Acquisition, Waiting, describe
from ..state import state_directory
from .briefing import Briefing
from .gate import Links, Order
from .naming import name_process
from .plan import Plan
from .run_tree import RunTree
from .signals import Signals
from .wire import FAILURES, LOWEST_DESCRIPTOR, Kind, Message

_TICK = 0.05
_SNAPSHOT_EVERY = 0.5
_LATER_THAN_SUPERVISOR = 0.03
_RELEASE = 3.0
"""Seconds for giving the lease back: the supervisor waits for little more."""
_REQUEST = 3.0


def run(supervisor: int, briefing: Briefing, links: Links, signals: Signals) -> NoReturn:
    """The whole life of R. Never returns; whatever goes wrong is told to the supervisor."""
    stderr = _detach((*briefing.descriptors, *links.channel.descriptors, *links.gate.of_renewer), signals)
    preload(probable_backend(sys.argv))
    content = briefing.receive()
    if content is None:
        os._exit(0)
    plan, channel = Plan.from_bytes(content), links.channel
    try:
        if plan.verbosity >= 2 and stderr >= 0:
            os.dup2(stderr, 2)
        _Renewer(plan, supervisor, links, stderr).run()
    except Cancelled:
        pass
    except DistlockError as error:
        place = next((i for i, kind in enumerate(FAILURES) if type(error) is kind), 0)
        channel.send(Message(Kind.FAILED, place, text=str(error)))
    except BaseException as error:  # noqa: BLE001 - a process that must tell its end
        if plan.verbosity >= 2:
            import traceback

            traceback.print_exc()
        channel.send(Message(Kind.FAILED, 0, text=f"the renewer failed: {type(error).__name__}: {error}"))
    finally:
        os._exit(0)


def _detach(ours: Sequence[int], signals: Signals) -> int:
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


class _Renewer:
    def __init__(self, plan: Plan, supervisor: int, links: Links, stderr: int) -> None:
        self._plan = plan
        self._supervisor = supervisor
        self._tree = RunTree(plan.owner, supervisor, plan.strangers)
        self._channel, self._deadline, self._gate = links
        self._stderr = stderr
        self._refusal: DistlockError | None = None
        self._child_started = False

    # -- acquire, hold, release: the story in order ------------------------------------------------------------------

    def run(self) -> None:
        backend = open_backend(self._plan.backend, Environment(boottime, state_directory, self._plan.password))
        lease_file = KeptLeaseFile(self._plan.owner, self._plan.backend_shown, lambda text: self._note(1, text))
        self._lease_file = lease_file
        grant = self._acquire_or_clean_up(backend)
        self._schedule = Schedule(grant, self._plan.grace)
        self._deadline.set(self._schedule.hard)
        renewal = Renewal(
            backend,
            self._schedule,
            boottime,
            on_renewed=self._renewed,
            on_lost=self._lost,
            on_trouble=lambda line: self._channel.send(Message(Kind.TROUBLE, text=line)),
        )
        lease_file.write(self._schedule)
        self._start_child(renewal)
        self._hold(renewal)
        self._give_back(backend, renewal)
        if self._refusal:
            raise self._refusal

    def _acquire_or_clean_up(self, backend: Backend) -> Grant:
        try:
            return self._acquire(backend)
        except Cancelled:
            self._channel.receive()
            if self._channel.peer_is_gone:
                self._tree.await_supervisors_death()
                self._tree.end_control_group()
                self._tree.remove_control_group()
            raise

    def _acquire(self, backend: Backend) -> Grant:
        plan = self._plan
        client = Client(
            owner=plan.owner,
            host=os.uname().nodename,
            pid=self._supervisor,
            user=_user(),
            command=os.fsdecode(plan.command.words[0]),
            label=plan.label,
            since=time.time(),
        )
        waiting = Waiting(plan.wait, plan.jitter, outer_owners(plan.caller_environment))
        on_waiting: Callable[[LockState], None] | None = None
        if plan.verbosity >= 1:
            on_waiting = lambda state: self._note(1, f"waiting: {describe(state)}")  # noqa: E731
        required = plan.require
        qualify: Callable[[], None] | None = None
        if required:
            qualify = lambda: check_class(backend, plan.backend_shown, required, _REQUEST)  # noqa: E731
        request = Request(plan.name, plan.ttl, client)
        return Acquisition(
            backend,
            request,
            waiting,
            self._channel.reading,
            boottime,
            qualify=qualify,
            explain=plan.explain_conflict,
            on_waiting=on_waiting,
        ).run()

    def _start_child(self, renewal: Renewal) -> None:
        """If the supervisor permits it, now or later. Sets ``_refusal`` when nothing is to be started any more."""
        if renewal.lost or boottime() >= self._schedule.soft:
            self._refusal = LeaseLost(f"{quoted(self._plan.name)}: lease lost before COMMAND was started")
            return
        parked = self._gate.take()
        if parked is None:
            return
        self._tree.group = parked.group
        self._child_started = True  # first: from here on it is ended here too, whatever becomes of the supervisor
        if self._gate.order(Order(self._schedule.grant.token, self._lease_file.path)):
            self._channel.send(Message(Kind.GRANTED))
        elif self._tree.supervisor_lives():
            self._child_started = False
            self._gate.permit(parked)  # so that the supervisor can tell
            self._refusal = InternalError("the process that waited to become COMMAND was killed; nothing was started")

    def _hold(self, renewal: Renewal) -> None:
        """Until the supervisor says that the child has ended, or is dead, or all must be killed."""
        look = select.poll()
        look.register(self._channel.reading, select.POLLIN)
        waiting = not self._child_started
        if waiting:
            look.register(self._gate.permission, select.POLLIN)
        snapshot_at = boottime() + _SNAPSHOT_EVERY / 2
        tidy_at, tidied = snapshot_at, False
        while not self._refusal:
            look.poll(_TICK * 1000)
            now = boottime()
            if self._child_started and now >= self._deadline.get() + _LATER_THAN_SUPERVISOR:
                self._end_tree(renewal)
            if any(message.kind is Kind.RELEASE for message in self._channel.receive()):
                return
            if self._channel.peer_is_gone:
                self._supervisor_died(renewal)
                return
            renewal.start()  # not at once: the child needs the processor, and the first renewal is far off
            if waiting:
                self._start_child(renewal)
                if self._child_started:
                    waiting = False
                    look.unregister(self._gate.permission)
            if now >= snapshot_at:
                snapshot_at = now + _SNAPSHOT_EVERY
                self._tree.look()
            if not tidied and now >= tidy_at:
                # It reads a directory, which may be on a server that hangs: not here, where the clock is watched.
                threading.Thread(target=self._lease_file.tidy, args=(now,), daemon=True).start()
                tidied = True

    def _supervisor_died(self, renewal: Renewal) -> None:
        self._tree.await_supervisors_death()
        self._end_tree(renewal)
        self._tree.remove_control_group()

    def _give_back(self, backend: Backend, renewal: Renewal) -> None:
        """Nothing is sent for a lease that is lost. The lease file goes before the lease: nobody who looks at it must
        find one that is no more."""
        quiet = renewal.stop(_RELEASE)  # a renewal under way would write the file again
        self._lease_file.remove()
        trouble = ""
        if not renewal.lost:
            try:
                if not quiet:
                    raise Unavailable("a renewal is still unanswered")
                backend.release(renewal.grant, _RELEASE)
            except DistlockError as error:
                trouble = str(error)
        self._channel.send(Message(Kind.RELEASED, int(not trouble), text=trouble))

    # -- told by the renewing thread ---------------------------------------------------------------------------------

    def _renewed(self, hard: float) -> None:
        self._deadline.set(hard)
        self._lease_file.write(self._schedule)

    def _lost(self, reason: str) -> None:
        """The grace counts from now; the deadline can only become earlier."""
        self._channel.send(Message(Kind.LOST, text=reason))
        self._deadline.set(min(self._deadline.get(), boottime() + self._plan.grace))
        self._lease_file.remove()

    def _note(self, verbosity: int, line: str) -> None:
        if self._plan.verbosity >= verbosity:
            self._channel.send(Message(Kind.NOTE, verbosity, text=line))

    # -- ending the tree ---------------------------------------------------------------------------------------------

    def _end_tree(self, renewal: Renewal) -> None:
        """While something cannot be killed the lease is kept, if the server lets us."""

        def survive(pids: list[int]) -> None:
            renewal.survivors = True
            renewal.start()
            if self._channel.peer_is_gone and self._stderr >= 0:
                say_if_ready(cannot_kill(pids), self._stderr)

        self._tree.end(survive)
        renewal.survivors = False
        self._child_started = False


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
