"""The child's process: made early, started late."""

import errno
import os
import signal

from ..clock import boottime
from ..environment import of_child
from ..errors import CommandNotExecutable, CommandNotFound, InternalError
from .cgroup import ControlGroup
from .command import execute
from .gate import Gate, Order, Parked
from .linux import die_with_parent
from .naming import name_process
from .plan import Plan
from .signals import Signals
from .wire import Channel, SharedDeadline, pipe

_NO_ORDER = 0
"""No errno."""


class ParkedChild:
    """The command's process, forked before the lock is had and held before its exec: so that, when the grant comes,
    neither the fork nor entering a control group (a dozen milliseconds) has to be waited for.

    It dies with the process that made it, and at once if that is dead already; it ends by itself when that lets go of
    it. Must be made by a process with one thread: the parent's death signal comes when the THREAD that forked ends, and
    only then is it safe to run Python between fork and exec.
    """

    def __init__(
        self,
        plan: Plan,
        signals: Signals,
        channel: Channel,
        deadline: SharedDeadline,
        gate: Gate,
        *,
        own_group: bool,
        cgroup: ControlGroup | None,
    ) -> None:
        self._command = plan.command
        self._gate = gate
        self._own_group = own_group
        supervisor = os.getpid()
        self._answer, answer_out = pipe()  # close-on-exec: end of file means that the exec has happened
        self.pid = os.fork()
        if self.pid == 0:
            code = errno.ENOEXEC
            try:
                die_with_parent()
                if os.getppid() != supervisor:
                    os._exit(125)
                channel.close()  # or the renewer would not see the supervisor's end before ours
                name_process("distlock-parked")
                if own_group:
                    os.setpgid(0, 0)
                if cgroup:
                    cgroup.enter()
                order = gate.await_order()
                if order is None:
                    code = _NO_ORDER
                    return
                environment = _environment(plan, order)
                signals.restore_in_child()
                if boottime() >= deadline.get():  # stopped meanwhile, or the supervisor was
                    os.kill(os.getpid(), signal.SIGKILL)
                code = execute(plan.command, environment)
            finally:
                os.write(answer_out, code.to_bytes(4, "little"))
                os._exit(125)
        gate.child_is_forked()
        os.close(answer_out)
        self._is_parked = True
        if own_group:
            try:
                os.setpgid(self.pid, self.pid)  # both do it, so that neither has to wait for the other
            except OSError:
                pass

    def permit(self) -> None:
        """From here on the renewer may start it."""
        self._gate.permit(Parked(self.pid, self.pid if self._own_group else 0))

    def started(self) -> None:
        """The renewer has ordered it to start; it may still be on its way to the exec."""
        self._is_parked = False

    def check_exec(self) -> None:
        """Once it has ended. Raises CommandNotFound, CommandNotExecutable, InternalError when there was no exec."""
        answer = os.read(self._answer, 4)
        os.close(self._answer)
        if answer:
            code = int.from_bytes(answer, "little")
            if code == _NO_ORDER:
                raise InternalError("the renewer ended while it was about to start COMMAND; nothing was started")
            kind = CommandNotFound if code in (errno.ENOENT, errno.ENOTDIR) else CommandNotExecutable
            raise kind(f"{self._command.shown}: {os.strerror(code)}")

    def dismiss(self) -> None:
        """There will be no child. Does nothing once it was started."""
        if not self._is_parked:
            return
        self._is_parked = False
        os.kill(self.pid, signal.SIGKILL)  # it would end by itself if it were not stopped
        os.close(self._answer)
        os.waitpid(self.pid, 0)


def _environment(plan: Plan, order: Order) -> dict[bytes, bytes]:
    return of_child(
        plan.caller_environment,
        name=plan.name,
        owner=plan.owner,
        token=order.token,
        ttl=plan.ttl,
        lease_file=order.lease_file,
    )
