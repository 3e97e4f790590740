"""R, the renewer: gets the lease, keeps it, gives it back; ends the child's tree if the supervisor does not.

It runs in a session of its own. The main thread does nothing that can block for long: it watches the pipe from the
supervisor, the clock and the tree; the backend is used by the renewing thread. End of file on the pipe means that the
supervisor is dead: the tree is ended at once and the lock freed at once, not after the TTL.
"""

from __future__ import annotations

import select
import threading
from contextlib import closing

from .. import window
from ..backends import open_backend
from ..backends.base import (
    Backend,
    DistlockError,
    Environment,
    Grant,
    LeaseLost,
    LockState,
    Unavailable,
    Unmarked,
)
from ..clock import NEVER, boottime
from ..errors import Cancelled, InternalError
from ..fail_open import NoRenewal, OpenRenewal
from ..granted import check_granted
from ..holders import describe
from ..leasefile import KeptLeaseFile
from ..leasing import acquire, give_back
from ..notices import cannot_kill, say_if_ready
from ..quoting import quoted
from ..renewal import Renewal, Schedule, Told
from ..state import state_directory
from ..timeouts import RELEASE
from . import terms
from .detached import account_of
from .gate import Links
from .plan import Plan
from .run_tree import RunTree
from .wire import Kind, Message, failure

_TICK = 0.05
_SNAPSHOT_EVERY = 0.5
_LATER_THAN_SUPERVISOR = 0.03
_RELEASE_WHEN_LOST = 0.3
_LEASE_FILE = 0.2
"""Seconds for which a release waits until nobody finds the lease file any more."""


class Renewer:
    def __init__(self, plan: Plan, supervisor: int, links: Links, stderr: int) -> None:
        self._plan = plan
        self._supervisor = supervisor
        self._tree = RunTree(plan.owner, supervisor, plan.strangers)
        self._channel, self._deadline, self._gate = links
        self._stderr = stderr
        self._refusal: DistlockError | None = None
        self._schedule: Schedule | None = None
        self._granted_at = 0.0
        self._child_started = False
        self._run_until = NEVER
        self._unlocked = ""
        self.account = account_of(plan, supervisor, lambda text: self._note(1, text))

    # -- acquire, hold, release: the story in order ------------------------------------------------------------------

    def run(self) -> None:
        self.account.prepare_soon()
        plan = self._plan
        try:
            # Closed at the end, or what an engine has opened to look around would stay behind for as long as it lasts.
            with closing(open_backend(plan.backend, Environment(boottime, state_directory, plan.password))) as backend:
                self._run(backend)
        except Cancelled:
            self.account.not_had(None)
        except BaseException as error:
            self.account.not_had(error)
            if not isinstance(error, DistlockError):
                raise
            if plan.fail_open and not self._schedule and isinstance(error, Unavailable) and not error.permanent:
                self._run_without_a_lock(str(error))
            else:
                self._channel.send(failure(error))

    def _run(self, backend: Backend) -> None:
        lease_file = KeptLeaseFile(self._plan.owner, self._plan.backend_shown, lambda text: self._note(1, text))
        self._lease_file = lease_file
        grant = self._acquire_or_clean_up(backend)
        self._granted_at = boottime()
        self._schedule = Schedule(grant, self._plan.grace)
        self._deadline.set(self._schedule.hard)
        renewal = self._renewal(backend, self._schedule)
        lease_file.write(self._schedule)
        terms.await_lease_file(lease_file, window.request_timeout(grant), self._channel)
        self._start_child(renewal)
        if not self._child_started:
            self._channel.send(Message(Kind.HELD))  # once: a supervisor that is stopped must find room for GRANTED
        self.account.granted(grant)  # not before the child; and before anything is told of renewals
        self._give_back(backend, renewal, self._hold(renewal))
        if self._refusal:
            raise self._refusal

    def _renewal(self, backend: Backend, schedule: Schedule) -> Renewal:
        told = Told(
            self._renewed,
            self._lost,
            self._renewal_failed,
            self.account.renewals.answered,
        )
        if self._plan.fail_open:
            return OpenRenewal(backend, schedule, boottime, told, self._going_on_without)
        return Renewal(backend, schedule, boottime, told)

    def _run_without_a_lock(self, why: str) -> None:
        """--fail-open: nothing to renew, and nothing to give back."""
        self._unlocked = why
        self._note(-1, f"{quoted(self._plan.name)}: COMMAND runs without a lock and without a token: {why}")
        self._deadline.set(NEVER)
        renewal = NoRenewal()
        self._start_child(renewal)
        end = self._hold(renewal)
        if end is not None:
            self.account.ended(end.first, None)
        self._channel.send(Message(Kind.RELEASED, 1))

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
        waits = self._plan.wait != 0 and (self._plan.verbosity >= 1 or self._plan.keeping.log)
        on_waiting = self._waiting if waits else None
        wanted = terms.wanted(self._plan, self._supervisor)
        grant = acquire(backend, wanted, self._channel.reading, on_waiting, self.account.asking)
        if other_ttl := check_granted(backend, grant, self._plan.ttl, self._plan.grace, RELEASE):
            self._note(1, other_ttl)
        terms.use_window(self._plan, backend, grant, self._channel)
        return grant

    def _start_child(self, renewal: Renewal | NoRenewal) -> None:
        """If the supervisor permits it, now or later. Sets ``_refusal`` when nothing is to be started any more."""
        schedule = self._schedule
        if renewal.lost or (schedule and boottime() >= schedule.soft):
            self._refusal = LeaseLost(f"{quoted(self._plan.name)}: lease lost before COMMAND was started")
            return
        parked = self._gate.take()
        if parked is None:
            return
        self._tree.group = parked.group
        self._child_started = True  # first: from here on it is ended here too, whatever becomes of the supervisor
        order = terms.order(self._plan, schedule.grant, self._lease_file.path) if schedule else terms.bare(self._plan)
        if self._gate.order(order):
            if self._plan.max_run is not None:
                self._run_until = boottime() + self._plan.max_run + self._plan.grace
            token, index = (-1 if number is None else number for number in (order.token, order.holder_index))
            self._channel.send(Message(Kind.GRANTED, token, index))
            self.account.started()
            if not schedule:
                self.account.unlocked(self._unlocked)
        elif self._tree.supervisor_lives():
            self._child_started = False
            self._gate.permit(parked)  # so that the supervisor can tell
            self._refusal = InternalError("the process that waited to become COMMAND was killed; nothing was started")

    def _hold(self, renewal: Renewal | NoRenewal) -> Message | None:
        """Until the supervisor says that the child has ended, or is dead (None), or all must be killed."""
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
            if self._child_started and now >= min(self._deadline.get(), self._run_until) + _LATER_THAN_SUPERVISOR:
                self._end_tree(renewal)
            for message in self._channel.receive():
                if message.kind is Kind.STOPPED:
                    self.account.stopped("supervisor")
                elif message.kind is Kind.RELEASE:
                    return message
            if self._channel.peer_is_gone:
                self._supervisor_died(renewal)
                return None
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
                if self._schedule:
                    threading.Thread(target=self._lease_file.tidy, args=(now,), daemon=True).start()
                tidied = True
        return None

    def _supervisor_died(self, renewal: Renewal | NoRenewal) -> None:
        self._tree.await_supervisors_death()
        self._end_tree(renewal)
        self._tree.remove_control_group()

    def _give_back(self, backend: Backend, renewal: Renewal, end: Message | None) -> None:
        is_lost = bool(end and end.second)

        def before() -> None:
            self._lease_file.remove()
            self._lease_file.settle(_LEASE_FILE)
            if end is not None:
                self.account.ended(end.first, end.text if is_lost else None, renewal.open_because)

        patience = _RELEASE_WHEN_LOST if is_lost else RELEASE
        keep_for = 0.0
        if end is not None and not is_lost and not renewal.lost:
            keep_for = terms.keep_for(self._plan, backend, self._granted_at, self._channel, self._note)
        trouble = ""
        try:
            trouble = give_back(
                backend,
                renewal,
                before,
                patience=patience,
                marks=lambda: terms.marks(self._plan, self.account.ran_for),
                keep_for=keep_for,
                told_lost=is_lost,
            )
        except Unmarked as error:
            self._note(0, f"the lock was released, but a later run will not know that this one is done: {error}")
        self._channel.send(Message(Kind.RELEASED, int(not trouble), text=trouble))
        self.account.released(trouble)

    # -- told by the renewing thread ---------------------------------------------------------------------------------

    def _renewed(self, hard: float) -> None:
        self._deadline.set(hard)
        if self._schedule:
            self._lease_file.write(self._schedule)

    def _going_on_without(self, why: str) -> None:
        self._deadline.set(NEVER)
        self.account.unlocked(why)
        self._lease_file.remove()
        self._note(-1, f"{quoted(self._plan.name)}: the lease cannot be kept, COMMAND goes on without it: {why}")

    def _lost(self, reason: str) -> None:
        """The grace counts from now; the deadline can only become earlier."""
        self._channel.send(Message(Kind.LOST, text=reason))
        self.account.lost(reason)
        self._deadline.set(min(self._deadline.get(), boottime() + self._plan.grace))
        self._lease_file.remove()

    def _renewal_failed(self, line: str) -> None:
        self._channel.send(Message(Kind.TROUBLE, text=line))
        self.account.renewal_failed(line)

    def _waiting(self, state: LockState) -> None:
        self._note(1, f"waiting: {describe(state)}")
        self.account.waiting(state)

    def _note(self, verbosity: int, line: str) -> None:
        if self._plan.verbosity >= verbosity:
            self._channel.send(Message(Kind.NOTE, verbosity, text=line))

    # -- ending the tree ---------------------------------------------------------------------------------------------

    def _end_tree(self, renewal: Renewal | NoRenewal) -> None:
        """While something cannot be killed the lease is kept, if the server lets us."""

        def survive(pids: list[int]) -> None:
            renewal.survivors = True
            renewal.start()
            if self._channel.peer_is_gone and self._stderr >= 0:
                say_if_ready(cannot_kill(pids), self._stderr)

        self._tree.end(survive)
        renewal.survivors = False
        self.account.stopped("renewer")
        self._child_started = False
