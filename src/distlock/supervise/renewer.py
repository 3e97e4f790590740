"""R, the renewer: gets the lease, keeps it, gives it back; ends the child's tree if the supervisor does not.

It runs in a session of its own. The main thread does nothing that can block for long: it watches the pipe from the
supervisor, the clock and the tree; the backend is used by the renewing thread. End of file on the pipe means that the
supervisor is dead: the tree is ended at once and the lock freed at once, not after the TTL.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from typing import NoReturn

from ..backend_url import probable_backend
from ..backends import open_backend, preload
from ..backends.base import Backend, DistlockError, Environment, Grant, LeaseLost, LockState, Mark, Unmarked
from ..clock import boottime
from ..environment import outer_owners
from ..errors import Cancelled, InternalError
from ..leasefile import KeptLeaseFile
from ..leasing import Wanted, acquire, give_back
from ..notices import cannot_kill, say_if_ready
from ..quoting import quoted
from ..renewal import Renewal, Schedule
from ..session import describe
from ..state import state_directory
from ..window import Window, marks_of_success
from .briefing import Briefing
from .detached import account_of, detach, limit_accounting
from .gate import Links, Order
from .plan import Plan
from .run_tree import RunTree
from .signals import Signals
from .wire import Channel, Kind, Message, failure

_TICK = 0.05
_SNAPSHOT_EVERY = 0.5
_LATER_THAN_SUPERVISOR = 0.03
_RELEASE = 3.0
_RELEASE_WHEN_LOST = 0.3


def run(supervisor: int, briefing: Briefing, links: Links, signals: Signals) -> NoReturn:
    """The whole life of R. Never returns; whatever goes wrong is told to the supervisor."""
    stderr = detach((*briefing.descriptors, *links.channel.descriptors, *links.gate.of_renewer), signals)
    preload(probable_backend(sys.argv))
    content = briefing.receive()
    if content is None:
        os._exit(0)
    plan, channel = Plan.from_bytes(content), links.channel
    try:
        if plan.verbosity >= 2 and stderr >= 0:
            os.dup2(stderr, 2)
        renewer = _Renewer(plan, supervisor, links, stderr)
        try:
            renewer.run()
        except BaseException as error:  # noqa: BLE001 - as below
            _tell(error, plan, channel)
        limit_accounting(stderr)
        renewer.account.close()
    except BaseException as error:  # noqa: BLE001 - a process that must tell its end
        _tell(error, plan, channel)
    finally:
        os._exit(0)


def _tell(error: BaseException, plan: Plan, channel: Channel) -> None:
    if plan.verbosity >= 2:
        import traceback

        traceback.print_exception(error)
    channel.send(Message(Kind.FAILED, 0, text=f"the renewer failed: {type(error).__name__}: {error}"))


class _Renewer:
    def __init__(self, plan: Plan, supervisor: int, links: Links, stderr: int) -> None:
        self._plan = plan
        self._supervisor = supervisor
        self._tree = RunTree(plan.owner, supervisor, plan.strangers)
        self._channel, self._deadline, self._gate = links
        self._stderr = stderr
        self._refusal: DistlockError | None = None
        self._child_started = False
        self.account = account_of(plan, supervisor, lambda text: self._note(1, text))

    # -- acquire, hold, release: the story in order ------------------------------------------------------------------

    def run(self) -> None:
        self.account.prepare_soon()
        try:
            self._run()
        except Cancelled:
            self.account.not_had(None)
        except BaseException as error:
            self.account.not_had(error)
            if not isinstance(error, DistlockError):
                raise
            self._channel.send(failure(error))

    def _run(self) -> None:
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
            on_trouble=self._renewal_failed,
            on_answer=self.account.renewals.answered,
        )
        lease_file.write(self._schedule)
        self._start_child(renewal)
        self.account.granted(grant)  # not before the child; and before anything is told of renewals
        self._give_back(backend, renewal, self._hold(renewal))
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
        wanted = Wanted(
            name=plan.name,
            owner=plan.owner,
            ttl=plan.ttl,
            pid=self._supervisor,
            command=os.fsdecode(plan.command.words[0]),
            label=plan.label,
            require=plan.require,
            backend_shown=plan.backend_shown,
            wait=plan.wait,
            jitter=plan.jitter,
            explain=plan.explain_conflict,
            outer_owners=outer_owners(plan.caller_environment),
        )
        on_waiting = self._waiting if plan.verbosity >= 1 or plan.keeping.log else None
        return acquire(backend, wanted, self._channel.reading, on_waiting, self.account.asking)

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
            token = self._schedule.grant.token
            self._channel.send(Message(Kind.GRANTED, -1 if token is None else token))
            self.account.started()
        elif self._tree.supervisor_lives():
            self._child_started = False
            self._gate.permit(parked)  # so that the supervisor can tell
            self._refusal = InternalError("the process that waited to become COMMAND was killed; nothing was started")

    def _hold(self, renewal: Renewal) -> Message | None:
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
            if self._child_started and now >= self._deadline.get() + _LATER_THAN_SUPERVISOR:
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
                threading.Thread(target=self._lease_file.tidy, args=(now,), daemon=True).start()
                tidied = True
        return None

    def _supervisor_died(self, renewal: Renewal) -> None:
        self._tree.await_supervisors_death()
        self._end_tree(renewal)
        self._tree.remove_control_group()

    def _give_back(self, backend: Backend, renewal: Renewal, end: Message | None) -> None:
        is_lost = bool(end and end.second)

        def before() -> None:
            self._lease_file.remove()
            if end is not None:
                self.account.ended(end.first, end.text if is_lost else None)

        patience = _RELEASE_WHEN_LOST if is_lost else _RELEASE
        trouble = ""
        try:
            trouble = give_back(backend, renewal, before, patience=patience, marks=self._marks)
        except Unmarked as error:
            self._note(0, f"the lock was released, but a later run will not know that this one is done: {error}")
        self._channel.send(Message(Kind.RELEASED, int(not trouble), text=trouble))
        self.account.released(trouble)

    def _marks(self) -> tuple[Mark, ...]:
        ran_for = self.account.ran_for
        return () if ran_for is None else marks_of_success(Window(), ran_for)

    # -- told by the renewing thread ---------------------------------------------------------------------------------

    def _renewed(self, hard: float) -> None:
        self._deadline.set(hard)
        self._lease_file.write(self._schedule)

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

    def _end_tree(self, renewal: Renewal) -> None:
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
