"""The renewer as its host sees it: started, listened to, ended.

The host is somebody else's program: it may have threads, may reap every child there is, ignore SIGCHLD, fork, and die
of SIGPIPE. So the renewer is started without a fork in Python, known by a pidfd, and talked to by a socket that raises
no signal.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from typing import ClassVar

from ..backends.base import ConfigurationError, Unavailable
from ..clock import boottime
from ..errors import InternalError
from ..supervise.signals import FORWARDED, JOB_CONTROL
from ..supervise.wire import LOWEST_DESCRIPTOR, Channel, Kind, Message, SharedDeadline
from .order import HOST, LINE, PAGE, Order

_PATH = "_DISTLOCK_PATH"
_BOOT = (
    f"import os, sys; sys.path += [p for p in os.environ.pop('{_PATH}').split('\\n') if p not in sys.path]; "
    "from distlock.library.renewer import main; main()"
)
_START = 10.0


class _Line(Channel):
    def __init__(self, end: socket.socket) -> None:
        super().__init__(end.fileno(), end.fileno())
        self._end = end

    def _write(self, data: bytes) -> None:
        self._end.send(data, socket.MSG_NOSIGNAL)

    def close(self) -> None:
        self._end.close()


class RenewerProcess:
    """Once nothing refers to it any more, its socket is closed, and the renewer gives the lease back and ends."""

    def __init__(self, order: Order) -> None:
        """Raises ConfigurationError, InternalError, Unavailable."""
        try:
            end = self._start()
        except OSError as error:
            raise InternalError(f"the renewer could not be started: {error}") from error
        self._line = _Line(end)
        self._inode = os.fstat(end.fileno()).st_ino
        try:
            end.settimeout(_START)
            end.sendall(order.encode(), socket.MSG_NOSIGNAL)
        except TimeoutError:
            self.kill()
            raise Unavailable("the renewer does not answer") from None
        except ConnectionError:
            pass  # it is dead, as whoever asks will find out
        finally:
            end.setblocking(False)

    def _start(self) -> socket.socket:
        with ExitStack() as stack:
            end, others = socket.socketpair()
            stack.callback(others.close)
            on_failure = stack.enter_context(ExitStack())
            on_failure.callback(end.close)
            page = os.memfd_create("distlock-deadline")
            stack.callback(os.close, page)
            os.ftruncate(page, mmap.PAGESIZE)
            self._deadline = SharedDeadline(page)
            self._deadline.set(float("-inf"))
            self._pidfd = _Pidfd(_spawn(others.fileno(), page))
            on_failure.pop_all()
            return end

    def hard(self) -> float:
        """The hard deadline as the renewer has it now."""
        return self._deadline.get()

    def is_gone(self) -> bool:
        """Asked BEFORE the messages are read: its last words may come in between."""
        pidfd = self._pidfd.number
        return self._line.peer_is_gone or pidfd < 0 or _any_readable(0, pidfd)

    def messages(self) -> list[Message]:
        try:
            if os.fstat(self._line.reading).st_ino == self._inode:
                return self._line.receive()
        except OSError:
            pass
        # The host has closed descriptors that are not its own. Another one may have the number by now: reading that
        # would take its data away, or wait for it.
        self._line.peer_is_gone = True
        return []

    def await_news(self, seconds: float | None) -> None:
        """Until there may be a message or the renewer is gone."""
        pidfd = self._pidfd.number
        if pidfd >= 0:
            _any_readable(seconds, self._line.reading, pidfd)

    def release(self, seconds: float) -> str:
        """Let it give back what it has, or leave the queue, and end; after ``seconds`` it is killed. Why that failed,
        or ""."""
        try:
            trouble = self._await_release(boottime() + seconds)
        finally:
            with suppress(OSError):
                self._line.close()  # after an interrupt it sees the end of file, and does the same unattended
            self._deadline = SharedDeadline()  # lets go of the file, though somebody may refer to us for long
        self.kill()
        return trouble

    def _await_release(self, until: float) -> str:
        with suppress(OSError):
            self._line.send(Message(Kind.RELEASE))
        while (left := until - boottime()) > 0:
            gone = self.is_gone()
            for message in self.messages():
                if message.kind is Kind.RELEASED:
                    return message.text
            if gone:
                return "the renewer was dead"
            self.await_news(left)
        return "no answer in time"

    def kill(self) -> None:
        """Nothing happens to one that has ended, whoever has reaped it."""
        if not self._pidfd.reap(os.WNOHANG):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd.number, signal.SIGKILL)
            self._pidfd.reap()


class _Pidfd:
    """A child. The descriptor is open until the child is reaped: a renewer that was left alone would stay a zombie for
    as long as the host lives."""

    _left_alone: ClassVar[list[int]] = []

    def __init__(self, pid: int) -> None:
        self.number = os.pidfd_open(pid)

    def reap(self, options: int = 0) -> bool:
        """Whether it has ended and is reaped."""
        if self.number >= 0 and not _reap(self.number, options):
            return False
        self.number = -1
        return True

    def __del__(self) -> None:
        if hasattr(self, "number") and not self.reap(os.WNOHANG):
            self._left_alone.append(self.number)

    @classmethod
    def reap_left_alone(cls) -> None:
        waited = []
        while cls._left_alone:
            with suppress(IndexError):  # another thread was faster
                number = cls._left_alone.pop()
                if not _reap(number, os.WNOHANG):
                    waited.append(number)
        cls._left_alone += waited


def _reap(pidfd: int, options: int) -> bool:
    try:
        if os.waitid(os.P_PIDFD, pidfd, os.WEXITED | options) is None:
            return False
    except ChildProcessError:
        pass  # somebody else has, or it is another process's child
    os.close(pidfd)
    return True


def _any_readable(seconds: float | None, *descriptors: int) -> bool:
    look = select.poll()  # one for each call: two threads must not use the same at once
    for descriptor in descriptors:
        look.register(descriptor, select.POLLIN)
    return bool(look.poll(None if seconds is None else max(0.0, seconds) * 1000))


def _spawn(line: int, page: int) -> int:
    """By vfork and exec in C, which harms no thread of the host."""
    _Pidfd.reap_left_alone()
    itself = os.pidfd_open(os.getpid())
    given = {LINE: line, PAGE: page, HOST: itself}
    high: list[int] = []
    try:
        # Above the numbers they get, so that none is overwritten before it is copied.
        high += [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) for number in given.values()]
        return os.posix_spawn(
            _interpreter(),
            [_interpreter(), *_flags(), "-c", _BOOT],
            {**os.environ, _PATH: "\n".join(os.path.abspath(str(path)) for path in sys.path)},
            file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in zip(high, given, strict=True)],
            setsigmask=FORWARDED | JOB_CONTROL,
        )
    finally:
        for number in (*high, itself):
            os.close(number)


def _interpreter() -> str:
    """Where Python is embedded, sys.executable is the program that embeds it, or nothing."""
    names = (sys.executable, *(f"{prefix}/bin/python3" for prefix in (sys.exec_prefix, sys.base_exec_prefix)))
    for path in names:
        if path and os.path.basename(path).startswith("python") and os.access(path, os.X_OK):
            return path
    raise ConfigurationError(f"no Python interpreter for the renewer: {names[1]} does not exist")


def _flags() -> list[str]:
    """The folder that the host was started in is no place for modules (-P); what the host does not read, the renewer
    does not either."""
    if sys.flags.isolated:
        return ["-I"]
    return ["-P", *(["-E"] if sys.flags.ignore_environment else []), *(["-s"] if sys.flags.no_user_site else [])]
