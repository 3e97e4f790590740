"""A control group for the child, where version 2 is mounted and writable: its kill file ends all at once.

It reaches what the other ways may miss, such as a daemon with an emptied environment that was born a moment before the
supervisor was killed, and no fork is faster. It needs root or a delegated group, so it is never the only way: without
one, or when anything about it fails, the run goes on as it does elsewhere.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from .tree import Process, identify

_PREFIX = "distlock-"
_ABANDONED = 60.0


class ControlGroup:
    """The group of one run, by owner id, so that supervisor and renewer find the same one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, owner: str) -> ControlGroup | None:
        """Where it is or would be; None where there can be none."""
        try:
            ours = _own_directory()
        except OSError:
            return None
        return cls(ours / f"{_PREFIX}{owner}") if ours and os.access(ours / "cgroup.procs", os.W_OK) else None

    def create(self) -> bool:
        try:
            self._remove_abandoned()
            self._path.mkdir()
        except OSError:
            return False
        return True

    def enter(self) -> None:
        """This process, between fork and exec."""
        try:
            (self._path / "cgroup.procs").write_text("0")
        except OSError:
            pass  # then this run has no group, and is ended in the other ways

    def processes(self) -> list[Process]:
        return [process for pid in self._pids() if (process := identify(pid))]

    def kill(self) -> None:
        """SIGKILL for all in it, forks under way included (Linux 5.14)."""
        try:
            (self._path / "cgroup.kill").write_text("1")
        except OSError:
            pass

    def remove(self) -> None:
        """What is left in it is put where it would be without us: a finished command may leave a daemon."""
        for _ in range(50):
            try:
                self._path.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                for inner in self._path.glob(f"{_PREFIX}*"):  # of a nested run that was killed whole
                    ControlGroup(inner).remove()
                self._empty()
            else:
                return

    def _empty(self) -> None:
        for pid in self._pids():
            try:
                (self._path.parent / "cgroup.procs").write_text(str(pid))
            except OSError:
                pass  # it has just ended
        time.sleep(0.001)  # a zombie stays in its group until it is reaped

    def _pids(self) -> Iterator[int]:
        try:
            return map(int, (self._path / "cgroup.procs").read_text().split())
        except OSError:
            return iter(())

    def _remove_abandoned(self) -> None:
        """Groups of runs whose supervisor and renewer were both killed. One with processes in it cannot be removed."""
        for path in self._path.parent.glob(f"{_PREFIX}*"):
            try:
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    for inner in sorted(path.rglob(f"{_PREFIX}*"), reverse=True):  # the deepest first
                        inner.rmdir()
                    path.rmdir()
            except OSError:
                pass


def _own_directory() -> Path | None:
    """The directory of the group that this process is in; None unless it can be seen there."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    within = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if within is None:
        return None
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            root, point = (_unescaped(field) for field in left.split(" ")[3:5])
            if within == root or within.startswith(root.rstrip("/") + "/"):
                directory = Path(point + within.removeprefix(root.rstrip("/")))
                if str(os.getpid()) in (directory / "cgroup.procs").read_text().split():
                    return directory
    return None


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), field)
