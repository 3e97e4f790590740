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
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from ..backends import open_backend
from ..backends.base import (
    Backend,
    Client,
    DistlockError,
    Environment,
    Grant,
    LockState,
    Request,
    Unavailable,
)
from ..clock import boottime
from ..environment import outer_owners
from ..errors import Cancelled
from ..leasefile import KeptLeaseFile
from ..notices import cannot_kill, say_if_ready
from ..renewal import Renewal, Schedule
from ..requirement import check_class
from ..session import Acquisition, Waiting, describe
from ..state import state_directory
from . import tree
from .cgroup import ControlGroup
from .naming import name_process
from .plan import Plan
from .signals import Signals
from .wire import FAILURES, LOWEST_DESCRIPTOR, Channel, Kind, Message, SharedDeadline

_TICK = 0.05
_SNAPSHOT_EVERY = 0.5
_LATER_THAN_SUPERVISOR = 0.03
_RELEASE = 3.0
"""Seconds for giving the lease back: the supervisor waits for little more."""
_REQUEST = 3.0
_STUBBORN_AFTER = 1.0


def run(plan: Plan, supervisor: int, channel: Channel, deadline: SharedDeadline, signals: Signals) -> NoReturn:
    """The whole life of R. Never returns; whatever goes wrong is told to the supervisor."""
    try:
        stderr = _detach(channel, signals, keep_stderr=plan.verbosity >= 2)
        _Renewer(plan, supervisor, channel, deadline, stderr).run()
    except Cancelled:
        pass
    except DistlockError as error:
        place = next((i for i, kind in enumerate(FAILURES) if type(error) is kind), 0)
        channel.send(Message(Kind.FAILED, place, text=str(error)))
    except BaseException as error:  # noqa: BLE001 - a process that must tell its end
        if plan.verbosity >= 2:
            traceback.print_exc()
        channel.send(Message(Kind.FAILED, 0, text=f"the renewer failed: {type(error).__name__}: {error}"))
    finally:
        os._exit(0)


def _detach(channel: Channel, signals: Signals, keep_stderr: bool) -> int:
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
    for standard in (0, 1) if keep_stderr else (0, 1, 2):
        os.dup2(null, standard)
    # The caller's other descriptors are not ours to keep open: somebody may wait for their end of file.
    kept = sorted({*channel.descriptors, stderr} - {-1})
    for low, high in zip([2, *kept], [*kept, os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(low + 1, high)
    return stderr


class _Renewer:
    def __init__(self, plan: Plan, supervisor: int, channel: Channel, deadline: SharedDeadline, stderr: int) -> None:
        self._plan = plan
        self._supervisor = supervisor
        self._supervisor_itself = tree.identify(supervisor)
        self._channel = channel
        self._deadline = deadline
        self._stderr = stderr
        self._not_of_the_run = plan.strangers | {os.getpid()}
        self._child_started = False
        self._group = 0
        self._cgroup = ControlGroup.of(plan.owner)
        self._known: set[tree.Process] = set()

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
        token = -1 if grant.token is None else grant.token
        self._channel.send(Message(Kind.GRANTED, token, text=lease_file.path))
        renewal.start()
        self._hold(renewal)
        self._give_back(backend, renewal)

    def _acquire_or_clean_up(self, backend: Backend) -> Grant:
        try:
            return self._acquire(backend)
        except Cancelled:
            self._channel.receive()
            if self._channel.peer_is_gone and self._cgroup:  # the supervisor was killed: it cannot remove the group
                self._await_supervisors_death()
                self._cgroup.kill()
                self._cgroup.remove()
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

    def _hold(self, renewal: Renewal) -> None:
        """Until the supervisor says that the child has ended, or is dead, or all must be killed."""
        look = select.poll()
        look.register(self._channel.reading, select.POLLIN)
        snapshot_at = boottime() + _SNAPSHOT_EVERY / 2
        tidy_at, tidied = snapshot_at, False
        while True:
            look.poll(_TICK * 1000)
            now = boottime()
            if self._child_started and now >= self._deadline.get() + _LATER_THAN_SUPERVISOR:
                self._end_tree(renewal)
            for message in self._channel.receive():
                if message.kind is Kind.CHILD:
                    self._child_started = True
                    self._group = message.second
                elif message.kind is Kind.RELEASE:
                    return
            if self._channel.peer_is_gone:
                self._supervisor_died(renewal)
                return
            if now >= snapshot_at:
                snapshot_at = now + _SNAPSHOT_EVERY
                self._known = set(self._below_supervisor())
            if not tidied and now >= tidy_at:
                # It reads a directory, which may be on a server that hangs: not here, where the clock is watched.
                threading.Thread(target=self._lease_file.tidy, args=(now,), daemon=True).start()
                tidied = True

    def _supervisor_died(self, renewal: Renewal) -> None:
        """Its files are closed a moment before its child gets the parent's death signal; only a supervisor that is a
        zombie has sent it. Until then a child could be alive that nobody has told us of."""
        self._await_supervisors_death()
        self._end_tree(renewal)
        if self._cgroup:
            self._cgroup.remove()

    def _supervisor_lives(self) -> bool:
        """It, and not a later process with its pid."""
        return self._supervisor_itself is not None and tree.is_alive(self._supervisor_itself)

    def _await_supervisors_death(self) -> None:
        while self._supervisor_lives():
            time.sleep(0.001)

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

    def _below_supervisor(self) -> list[tree.Process]:
        return tree.descendants(self._supervisor, self._not_of_the_run) if self._supervisor_lives() else []

    def _living(self) -> set[tree.Process]:
        """All of the run that can be found: by ancestry while the supervisor lives, and by what does not need it."""
        found = {process for process in self._known if tree.is_alive(process)}
        found.update(tree.with_owner(self._plan.owner))
        if self._group:
            found.update(tree.in_group(self._group))
        if self._cgroup:
            found.update(self._cgroup.processes())
        found.update(self._below_supervisor())
        for process in list(found):
            found.update(tree.descendants(process.pid, self._not_of_the_run))
        return {process for process in found if process.pid not in (os.getpid(), self._supervisor)}

    def _end_tree(self, renewal: Renewal) -> None:
        """SIGKILL until nothing is left. While something cannot be killed the lease is kept, if the server lets us."""
        if self._cgroup:
            self._cgroup.kill()  # also what only the group knows
        since = boottime()
        pause = 0.001
        while living := self._living():
            self._known |= living
            if self._cgroup:
                self._cgroup.kill()
            tree.send(living, signal.SIGKILL)
            time.sleep(pause)
            if pause < 0.05 and boottime() - since > _STUBBORN_AFTER:
                renewal.survivors = True
                pause = 0.05
                if self._channel.peer_is_gone and self._stderr >= 0:
                    say_if_ready(cannot_kill([process.pid for process in living]), self._stderr)
        renewal.survivors = False
        self._child_started = False


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
