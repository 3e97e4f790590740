"""The SIGSTOP drill: what happens to a holder that is frozen past its lease, on the backend as it is set up.

A holder with all its processes is stopped. Its lease ends, a second one takes over and writes to a fenced resource.
Then the first is let go, its job before its guards: shown is that the late write was refused by the fence, and how soon
the late job was dead. (Martin Kleppmann, "How to do distributed locking", 2016, describes the failure.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from .clock import boottime
from .durations import format_duration
from .errors import InternalError
from .supervise import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LONGEST_NAME = 100
SOON = 0.2
"""Seconds after the thaw within which the late job has to be dead."""
_PATIENCE = 30.0
T = TypeVar("T")


class HolderEnded(InternalError):
    """One of the two did not come to hold the lock. ``code`` is what its run ended with; the message, what it said."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Event(NamedTuple):
    at: float
    """Seconds since the first grant."""
    who: str
    """first, second, backend or operator"""
    what: str


class Outcome(NamedTuple):
    events: tuple[Event, ...]
    refused: int
    """Late writes of the first holder's job that the fence refused."""
    accepted_late: int
    """And those that it let through: none, or the drill has failed."""
    died_after: float | None
    """Seconds from the thaw of its guards to the end of the late job; None if it lived on."""
    code: int | None
    """What the first run ended with."""

    @property
    def fenced(self) -> bool:
        return self.refused > 0 and self.accepted_late == 0

    @property
    def stopped(self) -> bool:
        return self.died_after is not None and self.died_after <= SOON and self.code == 76

    @property
    def proven(self) -> bool:
        return self.fenced and self.stopped


class _Run:
    """One ``distlock run`` whose job writes to the resource."""

    def __init__(
        self,
        who: str,
        options: Sequence[str],
        lock: str,
        folder: Path,
        environment: Mapping[str, str],
        patience: float,
    ) -> None:
        self.who = who
        self._patience = patience
        self._log = folder / who
        job = [sys.executable, "-m", "distlock.drill_child", str(folder / "register"), str(self._log)]
        start = [sys.executable, "-c", "from distlock.cli.main import main; main()", "run", *options, lock, "--", *job]
        self._errors = (folder / f"{who}.err").open("wb+")
        self._process = subprocess.Popen(
            start, env=environment, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors
        )

    def writes(self) -> list[tuple[float, str]]:
        """When the resource answered, and how."""
        try:
            lines = self._log.read_text(encoding="ascii").rpartition("\n")[0].splitlines()
        except FileNotFoundError:
            return []
        return [(float(at), outcome) for at, outcome in map(str.split, lines)]

    def writes_since(self, instant: float) -> list[str]:
        return [outcome for at, outcome in self.writes() if at >= instant]

    def first_write(self) -> float:
        """Waits for it."""
        return _until(self._writes_while_it_runs, f"no write of the {self.who} holder", self._patience)[0][0]

    def _writes_while_it_runs(self) -> list[tuple[float, str]]:
        """Raises HolderEnded."""
        if self._process.poll() is not None:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="backslashreplace").strip().removeprefix("distlock: ")
            code = self._process.returncode
            raise HolderEnded(f"the {self.who} holder ended with {code}: {said}", code)
        return self.writes()

    def processes(self) -> tuple[list[tree.Process], list[tree.Process]]:
        """Those of distlock, and those of the job."""
        everything = tree.descendants(self._process.pid, frozenset())
        job = [process for process in everything if _is_job(process.pid)]
        guards = [tree.identify(self._process.pid), *(process for process in everything if process not in job)]
        return [process for process in guards if process], job

    def ended(self) -> int | None:
        try:
            return self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            return None

    def finish(self) -> None:
        """Whatever has become of it."""
        guards, job = self.processes()
        tree.send([*guards, *job], signal.SIGKILL)
        tree.send([*guards, *job], signal.SIGCONT)
        self._process.wait()
        self._errors.close()


def _freeze(guards: Sequence[tree.Process], job: Sequence[tree.Process]) -> None:
    """The guards first: they would continue a job that is stopped. And the job not while it holds the register's lock,
    where it would keep the second one out of the resource."""
    tree.send(guards, signal.SIGSTOP)
    while True:
        tree.send(job, signal.SIGSTOP)
        _until(lambda: all(_is_stopped(process.pid) for process in [*guards, *job]), "no freeze")
        if not any(f" {process.pid} " in Path("/proc/locks").read_text() for process in job):
            return
        tree.send(job, signal.SIGCONT)
        time.sleep(0.001)


def _is_stopped(pid: int) -> bool:
    try:
        return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _is_job(pid: int) -> bool:
    try:
        # As the module that is run, not as a word of the job that a guard was told.
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-m", b"distlock.drill_child"]
    except OSError:
        return False


def drill(ttl: float, environment: Mapping[str, str]) -> Outcome:
    """Takes about the TTL and a few seconds. ``environment`` says which backend to ``distlock run``.

    Raises HolderEnded, InternalError when a holder does not come to hold.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distlock-drill-")))
        # One name a host and user: each lock leaves a record in the backend.
        lock = f"distlock drill {os.uname().nodename} {os.geteuid()}"[:LONGEST_NAME]
        quiet = folder / "config.toml"
        quiet.write_text("[journal]\nenabled = false\n")  # a drill is no run that anybody wants to hear of
        options = ["--config", str(quiet)]
        options += ["--ttl", f"{ttl:g}", "--wait", f"{ttl + _PATIENCE:g}"]
        first = _Run("first", options, lock, folder, environment, ttl + _PATIENCE)
        stack.callback(first.finish)
        begun = first.first_write()
        events = [Event(0.0, "first", "granted; its job writes")]

        def note(who: str, what: str, at: float | None = None) -> float:
            now = boottime() if at is None else at
            events.append(Event(now - begun, who, what))
            return now

        guards, job = first.processes()
        _freeze(guards, job)
        frozen = note("operator", "freezes all processes of the first holder (SIGSTOP)")
        second = _Run("second", options, lock, folder, environment, ttl + _PATIENCE)
        stack.callback(second.finish)
        taken = second.first_write()
        note("backend", f"the lease of the first holder is over, {taken - frozen:.1f} s after the freeze", taken)
        note("second", "granted; its job writes, with a greater token", taken)
        tree.send(job, signal.SIGCONT)
        note("operator", "lets the first holder's job go on (SIGCONT)")
        _until(lambda: first.writes_since(taken) or not _lives(job), "no late write")
        thawed = note("operator", "lets its guards go on, too")
        tree.send(guards, signal.SIGCONT)
        died = _death(job, thawed + _PATIENCE)
        if died is not None:
            note("first", f"its job is dead, {(died - thawed) * 1000:.0f} ms after its guards woke", died)
        code = first.ended()
        late = first.writes_since(taken)
        refused, accepted = late.count("refused"), late.count("accepted")
        note("first", f"its late writes: {refused} refused by the fence, {accepted} accepted")
        note("first", f"its run ended with {code}")
        return Outcome(
            tuple(sorted(events, key=lambda event: event.at)),
            refused=refused,
            accepted_late=accepted,
            died_after=None if died is None else died - thawed,
            code=code,
        )


def _lives(processes: Sequence[tree.Process]) -> bool:
    return any(tree.is_alive(process) for process in processes)


def _death(job: Sequence[tree.Process], until: float) -> float | None:
    """The clock when nothing of the job was left."""
    while _lives(job):
        if boottime() > until:
            return None
        time.sleep(0.001)
    return boottime()


def _until(condition: Callable[[], T], otherwise: str, seconds: float = _PATIENCE) -> T:
    """The first true value."""
    until = boottime() + seconds
    while not (value := condition()):
        if boottime() > until:
            raise InternalError(f"the drill: {otherwise} within {format_duration(seconds)}")
        time.sleep(0.01)
    return value
