"""The child's process: made early, started late."""

import errno
import os
import signal
import struct

from ..clock import boottime
from ..environment import of_child
from ..errors import CommandNotExecutable, CommandNotFound, InternalError
from .cgroup import ControlGroup
from .command import execute
from .linux import die_with_parent
from .naming import name_process
from .plan import Plan
from .signals import Signals
from .tree import identify
from .wire import Channel, SharedDeadline, pipe

_ORDER = struct.Struct("<qd")  # token, TTL


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
        *,
        own_group: bool,
        cgroup: ControlGroup | None,
    ) -> None:
        self._command = plan.command
        supervisor = os.getpid()
        orders_in, self._orders = pipe()
        self._answer, answer_out = pipe()  # close-on-exec: end of file means that the exec has happened
        self.pid = os.fork()
        if self.pid == 0:
            code = errno.ENOEXEC
            try:
                die_with_parent()
                if os.getppid() != supervisor:
                    os._exit(125)
                os.close(self._orders)
                channel.close()  # or the renewer would not see the supervisor's end before ours
                name_process("distlock-parked")
                if own_group:
                    os.setpgid(0, 0)
                if cgroup:
                    cgroup.enter()
                environment = _await_order(plan, orders_in)
                signals.restore_in_child()
                if boottime() >= deadline.get():  # stopped meanwhile, or the supervisor was
                    os.kill(os.getpid(), signal.SIGKILL)
                code = execute(plan.command, environment)
            finally:
                os.write(answer_out, code.to_bytes(4, "little"))
                os._exit(125)
        os.close(orders_in)
        os.close(answer_out)
        self._is_parked = True
        if own_group:
            try:
                os.setpgid(self.pid, self.pid)  # both do it, so that neither has to wait for the other
            except OSError:
                pass

    def start(self, token: int | None, ttl: float, lease_file: str) -> None:
        """Does not wait for the exec: who is stopped before it must not keep its supervisor from the clock.
        Raises InternalError when it was killed while it waited: nothing is started."""
        if identify(self.pid) is None:
            raise InternalError("the process that waited to become COMMAND was killed; nothing was started")
        self._is_parked = False
        try:
            order = _ORDER.pack(-1 if token is None else token, ttl) + os.fsencode(lease_file)
            os.write(self._orders, order)
        except BrokenPipeError:
            pass  # it was killed; its status tells
        os.close(self._orders)

    def check_exec(self) -> None:
        """Once it has ended. Raises CommandNotFound, CommandNotExecutable when the exec failed: there was no child."""
        answer = os.read(self._answer, 4)
        os.close(self._answer)
        if answer:
            code = int.from_bytes(answer, "little")
            kind = CommandNotFound if code in (errno.ENOENT, errno.ENOTDIR) else CommandNotExecutable
            raise kind(f"{self._command.shown}: {os.strerror(code)}")

    def dismiss(self) -> None:
        """There will be no child. Does nothing after start()."""
        if not self._is_parked:
            return
        self._is_parked = False
        os.kill(self.pid, signal.SIGKILL)  # it would end by itself if it were not stopped
        os.close(self._orders)
        os.close(self._answer)
        os.waitpid(self.pid, 0)


def _await_order(plan: Plan, orders: int) -> dict[bytes, bytes]:
    """The environment to start with; ends this process if there is to be no start."""
    data = b""
    while piece := os.read(orders, 65536):
        data += piece
    if len(data) < _ORDER.size:
        os._exit(125)
    token, ttl = _ORDER.unpack_from(data)
    return of_child(
        plan.caller_environment,
        name=plan.name,
        owner=plan.owner,
        token=None if token < 0 else token,
        ttl=ttl,
        lease_file=os.fsdecode(data[_ORDER.size :]),
    )
