"""Finding and signalling every process of a run.

A process group misses what called setsid, a parent's death signal reaches one process, an environment variable can be
cleared. Ancestry does not lie as long as the supervisor lives, since it is the subreaper; the rest is for the renewer
when the supervisor is dead.
"""

import os
import signal
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_GONE = (FileNotFoundError, ProcessLookupError)
"""Any other error says nothing about a process (no descriptor left, say), and must not pass for its death."""


class Process(NamedTuple):
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    start: int
    """Clock ticks from boot to its start."""


class _Stat(NamedTuple):
    alive: bool
    parent: int
    group: int
    start: int


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The command's name may hold blanks and parentheses; the fields begin behind its last one.
            fields = file.read().rpartition(b")")[2].split()
    except _GONE:
        return None
    if len(fields) < 20:
        return None
    # A process whose first thread has ended looks like a zombie; it lives as long as it has other threads.
    alive = fields[0] not in (b"Z", b"X", b"x") or int(fields[17]) > 1
    return _Stat(alive, int(fields[1]), int(fields[2]), int(fields[19]))


def identify(pid: int) -> Process | None:
    """The live process with this pid now; None if there is none, or only a zombie."""
    stat = _stat(pid)
    return Process(pid, stat.start) if stat and stat.alive else None


def is_alive(process: Process) -> bool:
    return identify(process.pid) == process


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def children(pid: int) -> list[int]:
    """Direct children, zombies too. Needs CONFIG_PROC_CHILDREN, else reads all of /proc."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except _GONE:
        return found
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
        except _GONE:  # the thread has ended, or the kernel keeps no such list
            if not os.path.exists("/proc/thread-self/children"):
                return [p for p in _pids() if (stat := _stat(p)) and stat.parent == pid]
    return found


def descendants(root: int, without: frozenset[int]) -> list[Process]:
    """Live processes below ``root``; what is in ``without`` is left out together with all below it. A process that
    forks while we look may be missed: whoever must be sure looks again until nothing is left."""
    while True:
        direct = children(root)
        found = _living_below(direct, without)
        # Nothing left? Not if something was orphaned behind our back: it has come to the subreaper meanwhile.
        if found or set(children(root)) <= set(direct):
            return found


def _living_below(direct: list[int], without: frozenset[int]) -> list[Process]:
    found: list[Process] = []
    todo = [p for p in direct if p not in without]
    seen = set(todo)
    while todo:
        pid = todo.pop()
        below = [p for p in children(pid) if p not in without and p not in seen]
        seen.update(below)
        todo += below
        process = identify(pid)
        if process:
            found.append(process)
    return found


def group_exists(group: int) -> bool:
    """Whether any process is in it, zombies included."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def in_group(group: int, among: Iterable[Process] | None = None) -> list[Process]:
    """Live processes of a process group, of all or among some."""
    pids = _pids() if among is None else (process.pid for process in among)
    stats = ((pid, _stat(pid)) for pid in pids)
    return [Process(pid, stat.start) for pid, stat in stats if stat and stat.alive and stat.group == group]


def with_owner(owner: str) -> list[Process]:
    """Live processes that carry the owner id in their DISTLOCK_RUN, nested runs included; only those whose
    environment we may read."""
    found: list[Process] = []
    for pid in _pids():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read()
        except OSError:
            continue
        if owner.encode() in environment:
            run = next((v for v in environment.split(b"\0") if v.startswith(b"DISTLOCK_RUN=")), b"")
            if owner.encode() in run and (process := identify(pid)):
                found.append(process)
    return found


def send(processes: Iterable[Process], number: int) -> list[Process]:
    """Signal each process that is still the one meant; returns those that we were not allowed to signal."""
    forbidden: list[Process] = []
    for process in processes:
        try:
            _send(process, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            forbidden.append(process)
    return forbidden


def _send(process: Process, number: int) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        raise
    except OSError:  # a kernel before 5.3, or no descriptor left: the check alone must do
        if is_alive(process):
            os.kill(process.pid, number)
        return
    try:
        # Only now that the descriptor is open can the pid not go to another process between check and signal.
        if is_alive(process):
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)
