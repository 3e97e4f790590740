"""Real processes under test: starting the installed command, looking at what lives, waiting for conditions."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from distlock.supervise import tree

DISTLOCK = shutil.which("distlock", path=str(Path(sys.executable).parent)) or "distlock"
"""The command as it was installed beside this interpreter."""

T = TypeVar("T")


def wait_until(condition: Callable[[], T], seconds: float = 10.0, what: str = "") -> T:
    """The first true value of the condition. Waits for it, not for a time."""
    until = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > until:
            raise AssertionError(f"not within {seconds} s: {what or condition}\n{living()}")
        time.sleep(0.005)
    return value


def living() -> str:
    """What there is of distlock, for whoever has to find out why something did not happen."""
    columns = "pid,ppid,pgid,stat,etimes,wchan:20,comm,args"
    table = subprocess.run(["ps", "-eo", columns], capture_output=True, text=True, check=False).stdout
    return "\n".join(line[:160] for line in table.splitlines() if "distlock" in line or "PPID" in line)


def is_alive(pid: int) -> bool:
    """Zombies are dead."""
    return tree.identify(pid) is not None


def renewer_of(supervisor: int) -> int:
    """The pid of R, recognised by its name."""

    def look() -> int:
        for pid in tree.children(supervisor):
            try:
                if Path(f"/proc/{pid}/comm").read_text() == "distlock-renew\n":
                    return pid
            except OSError:
                continue
        return 0

    return wait_until(look, what=f"a renewer below {supervisor}")


STAMPER = """
import os, signal, sys, time
out, mode = sys.argv[1], sys.argv[2]
if "deaf" in mode:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
if "daemon" in mode and os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    if "bare" in mode:
        os.execve(sys.executable, [sys.executable, "-c", open(out + ".py").read(), out, "deaf"], {})
elif "daemon" in mode:
    signal.alarm(60)
    signal.pause()
file = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
end = time.monotonic() + 60
first = os.getpid()
while "storm" in mode and time.monotonic() < end:
    os.write(file, b"%d %d\\n" % (os.getpid(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
    if os.fork():
        while os.getpid() == first and time.monotonic() < end:
            time.sleep(0.1)
        os._exit(0)
    os.setsid()
    time.sleep(0.002)
while time.monotonic() < end:
    os.write(file, b"%d %d\\n" % (os.getpid(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)))
    time.sleep(0.001)
"""
"""A child that writes its pid and the time each millisecond. Modes: deaf (ignores TERM), daemon (the writer is a
double-forked process in a session of its own), bare (with an empty environment), storm (each writer leaves a
successor in a session of its own after two milliseconds, and ends)."""


@dataclass
class Stamps:
    """What a stamping child has written."""

    path: Path

    def lines(self) -> list[tuple[int, float]]:
        if not self.path.exists():
            return []
        # A line that is just being written has no end yet.
        text = self.path.read_text().rpartition("\n")[0]
        return [(int(pid), int(nanoseconds) / 1e9) for pid, nanoseconds in map(str.split, text.splitlines())]

    def last(self) -> float:
        return self.lines()[-1][1]

    def writer(self) -> int:
        return wait_until(self.lines, what="a first stamp")[-1][0]

    def go_on(self) -> bool:
        """Whether a new stamp comes within half a second."""
        before = len(self.lines())
        try:
            wait_until(lambda: len(self.lines()) > before, 0.5)
        except AssertionError:
            return False
        return True

    def keep_coming(self, seconds: float) -> None:
        """All the while: what goes on for that long (a stall, a cut) does not end the child."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.go_on()


@dataclass
class Lab:
    """A backend of its own and the command with an environment of its own. Everything started is killed at the end,
    by pid and with what it had started."""

    folder: Path
    backend: str
    environment: dict[str, str] = field(default_factory=dict)
    job: str = "job"
    """The lock that the test is about."""
    _started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "DISTLOCK_STATE_DIR": str(self.folder / "state"),
            "DISTLOCK_BACKEND": self.backend,
            **self.environment,
        }

    def run(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        environment: dict[str, str] | None = None,
        seconds: float = 30.0,
    ) -> subprocess.CompletedProcess[bytes]:
        """``distlock run ARGUMENTS`` to its end, with pipes and in a session without a terminal."""
        return subprocess.run(
            [DISTLOCK, "run", *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment | (environment or {}),
            timeout=seconds,
            start_new_session=True,
            cwd=self.folder,
            check=False,
        )

    def start(
        self, *arguments: str | bytes, environment: dict[str, str] | None = None, stderr: int = subprocess.PIPE
    ) -> subprocess.Popen[bytes]:
        """``distlock run ARGUMENTS`` in the background."""
        return self.spawn([DISTLOCK, "run", *arguments], environment=environment, stderr=stderr)

    def spawn(
        self,
        command: Sequence[str | bytes],
        environment: dict[str, str] | None = None,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=self.environment | (environment or {}),
            start_new_session=True,
            cwd=self.folder,
        )
        self._started.append(process)
        return process

    def stamper(self, mode: str = "plain", name: str = "stamps") -> tuple[list[str], Stamps]:
        """The command line of a stamping child, and what it will write."""
        path = self.folder / name
        Path(f"{path}.py").write_text(STAMPER)
        return [sys.executable, "-c", STAMPER, str(path), mode], Stamps(path)

    def waiters(self) -> int:
        """How many are in the queue of the one local lock that the lab has used."""
        (path,) = (self.folder / "locks").glob("*.lock/lock.db")
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            (found,) = connection.execute("SELECT count(*) FROM waiter").fetchone()
        finally:
            connection.close()
        return int(found)

    def close(self) -> None:
        for process in self._started:
            everything = [process.pid, *(p.pid for p in tree.descendants(process.pid, frozenset()))]
            for pid in everything if process.poll() is None else []:
                for number in (signal.SIGCONT, signal.SIGKILL):
                    try:
                        os.kill(pid, number)
                    except ProcessLookupError:
                        break
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
