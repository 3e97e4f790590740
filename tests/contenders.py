"""Holders and waiters as processes of their own, speaking to an engine through its contract.

Run as a program it is one of them: it queues, tells each event in a line on stdout with the clock beside it, renews
every third of the TTL unless told not to, and does what the lines on its stdin say.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from distlock.backends import open_backend
from distlock.backends.base import Backend, Client, DistlockError, Environment, Grant, LeaseLost, Request, Ticket
from distlock.clock import boottime

_PR_SET_DUMPABLE = 4


def environment(state: Path = Path("/nonexistent")) -> Environment:
    return Environment(clock=boottime, state_directory=lambda: state)


def client(owner: str | None = None, pid: int | None = None, label: str | None = None) -> Client:
    """A new owner id unless one is given."""
    return Client(
        owner=owner or os.urandom(8).hex(),
        host=socket.gethostname(),
        pid=pid or os.getpid(),
        user="tester",
        command="contender",
        label=label,
        since=time.time(),
    )


def request(name: str, ttl: float, owner: str | None = None, holders: int = 1) -> Request:
    return Request(name, ttl, client(owner), holders)


@contextmanager
def directory(mode: int, uid: int = 0, gid: int = 0) -> Iterator[Path]:
    """A new one where other users can get at it, which pytest's own are not. Needs root."""
    made = Path(tempfile.mkdtemp(prefix="distlock-"))
    try:
        os.chown(made, uid, gid)
        made.chmod(mode)
        yield made
    finally:
        shutil.rmtree(made)


@contextmanager
def never() -> Iterator[int]:
    """A descriptor that never becomes readable."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def acquire(ticket: Ticket, seconds: float = 10.0) -> Grant:
    """Poll and wait, as the core does."""
    until = boottime() + seconds
    with never() as cancel:
        while (grant := ticket.poll()) is None:
            left = until - boottime()
            assert left > 0, f"no grant within {seconds} s"
            ticket.wait(left, cancel)
    return grant


def take(
    backend: Backend, name: str, ttl: float = 30.0, owner: str | None = None, seconds: float = 10.0, holders: int = 1
) -> Grant:
    with backend.enqueue(request(name, ttl, owner, holders)) as ticket:
        return acquire(ticket, seconds)


def try_once(backend: Backend, name: str, ttl: float = 30.0, holders: int = 1) -> Grant | None:
    """What ``distlock run -n`` does."""
    with backend.enqueue(request(name, ttl, holders=holders)) as ticket:
        return ticket.poll()


class Contender:
    """Such a process. ``expect`` reads its events in order; killed by pid at the end if it still lives."""

    def __init__(
        self,
        url: str,
        name: str,
        *options: str,
        ttl: float = 30.0,
        owner: str | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.owner = owner or os.urandom(8).hex()
        command = [*prefix, sys.executable, __file__, url, name, f"--ttl={ttl}", f"--owner={self.owner}", *options]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=":".join(sys.path))
        )
        self._unread = b""
        self._read("first word", 30.0)  # so that contenders come in the order in which they are made

    def _read(self, event: str, seconds: float) -> None:
        assert self.process.stdout is not None
        until = time.monotonic() + seconds
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            assert ready, f"no {event!r} within {seconds} s"
            more = os.read(self.process.stdout.fileno(), 4096)
            assert more, f"ended before {event!r}"
            self._unread += more

    def expect(self, event: str, seconds: float = 15.0) -> tuple[str, float]:
        """The next event must be this one: its value, and the clock at that moment."""
        self._read(event, seconds)
        line, _, self._unread = self._unread.partition(b"\n")
        found, clock, value = line.decode().split(" ", 2)
        assert found == event, f"{found!r} instead of {event!r}: {value}"
        return value, float(clock)

    def first(self, *events: str, seconds: float = 15.0) -> str:
        """Which of these comes next."""
        self._read(" or ".join(events), seconds)
        found = self._unread.partition(b" ")[0].decode()
        assert found in events, f"{found!r} is none of {events}"
        return found

    def granted(self, seconds: float = 15.0) -> tuple[int, float]:
        """The token, 0 where there is none, and when."""
        token, clock = self.expect("granted", seconds)
        return int(token), clock

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def _say(event: str, value: object = "") -> None:
    os.write(1, f"{event} {boottime():.6f} {value}\n".encode())


def _command(seconds: float) -> str:
    """The next line from stdin, or "" after so many seconds."""
    ready, _, _ = select.select([0], [], [], seconds)
    return os.read(0, 100).decode().strip() if ready else ""


def _become(uid: int, gid: int, groups: list[int], *, hide: bool) -> None:
    """After the imports: the interpreter may lie where only root may read."""
    from distlock.backends.local_database import schema

    schema()
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    # A process that changed its uid hides from its new owner until it executes something. This one is to look as if
    # the user had started it.
    if not hide:
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1)


def _hold(backend: Backend, grant: Grant, pause: float) -> None:
    while True:
        word = _command(pause)
        try:
            if word == "release":
                backend.release(grant, 5.0)
                _say("released")
                return
            grant = backend.renew(grant, 5.0)
            if word == "renew":
                _say("renewed")
        except LeaseLost as error:
            _say("lost", error)
            return


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("--ttl", type=float)
    parser.add_argument("--pid", type=int, help="of the supervisor; else its own")
    parser.add_argument("--owner")
    parser.add_argument("--holders", type=int, default=1)
    parser.add_argument("--no-renewals", action="store_true")
    parser.add_argument("--identity", type=int, nargs="+", metavar="ID", help="uid, gid and supplementary groups")
    parser.add_argument("--hide", action="store_true", help="be a process that its own user may not look into")
    parser.add_argument("--umask", type=lambda text: int(text, 8), default=0o022)
    parser.add_argument("--count", type=Path, help="add one to the number in this file under the lock, a few times")
    options = parser.parse_args()
    os.umask(options.umask)
    grant: Grant | None
    backend = open_backend(options.url, environment())
    if options.identity:
        _become(options.identity[0], options.identity[1], options.identity[2:], hide=options.hide)
    if options.count:
        for _ in range(4):
            counting = take(backend, options.name, options.ttl, seconds=60.0)
            options.count.write_text(str(int(options.count.read_text()) + 1))
            backend.release(counting, 5.0)
        return
    try:
        asked = Request(options.name, options.ttl, client(options.owner, options.pid), options.holders)
        with backend.enqueue(asked) as ticket:
            grant = ticket.poll()
            if grant is None:
                _say("waiting")
            while grant is None:
                ticket.wait(60.0, 0)
                if _command(0):
                    return
                grant = ticket.poll()
            _say("granted", grant.token or 0)
    except DistlockError as error:
        _say("failed", f"{type(error).__name__}: {error}")
        return
    _hold(backend, grant, 3600.0 if options.no_renewals else options.ttl / 3)
    _command(3600.0)


if __name__ == "__main__":
    main()
