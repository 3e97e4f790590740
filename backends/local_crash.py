"""Proof that a holder crashed with its whole process tree, so that its lock need not wait for the TTL.

That its byte is unlocked tells only that the renewer is gone: supervisor and child may live on. The proof needs the
same boot and pid namespace, eyes for the holder's processes, a supervisor that is gone, and no process left that
carries the owner id in DISTLOCK_RUN. Limits: a process that wiped its environment, or a set-uid one that the looking
user may not read, is not seen. Whatever is not certain is no proof, and the TTL decides.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .local_boot import Host
    from .local_record import Record

RUN_IDS = b"DISTLOCK_RUN="


GONE = (FileNotFoundError, ProcessLookupError)
"""How /proc says that a process ended. Any other error, such as no free descriptor, says nothing about the process."""


def started(pid: int) -> int:
    """Start time of a running process in clock ticks since boot; 0 if there is none, or a zombie. Raises OSError."""
    try:
        state, start = _stat(pid)
    except GONE:
        return 0
    return 0 if state in (b"Z", b"X") else start


def _stat(pid: int) -> tuple[bytes, int]:
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    fields = stat[stat.rindex(b")") + 2 :].split()  # behind the command's name, which may hold blanks and brackets
    return fields[0], int(fields[19])


class CrashProof:
    """Looks for the processes of one holder, as often as asked. Remembers who it saw last, so that waiting for a
    survivor reads one file a look and not all of /proc."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._survivor = 0

    def given(self, record: Record) -> bool:
        """Whether the holder's tree is certainly gone. The caller has seen that the holder's byte is not locked."""
        if record.boot != self._host.boot or record.namespace != self._host.namespace or not record.namespace:
            return False
        if not record.started or os.geteuid() not in (0, record.uid):
            return False
        if not os.path.exists("/proc/1"):
            return False  # mounted with hidepid: what is not in it may live
        try:
            # The supervisor first: once it is gone, only survivors can start others.
            if started(record.holder.pid) == record.started:
                return False
            if self._survivor and _belongs(self._survivor, record):
                return False
            # Twice, since a survivor may start another one behind our back and end before we get to it.
            return not self._search(record) and not self._search(record)
        except OSError:
            return False

    def _search(self, record: Record) -> bool:
        for entry in os.listdir("/proc"):
            if entry.isdigit() and _belongs(int(entry), record):
                self._survivor = int(entry)
                return True
        return False


def _belongs(pid: int, record: Record) -> bool:
    """Whether the process carries the owner id, or may do so as far as we can see. Raises OSError."""
    try:
        return _carries(pid, record)
    except GONE:
        return False


def _carries(pid: int, record: Record) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        if not environment:
            # A kernel thread, a zombie, or a process whose first thread ended before the others: those may still work.
            return len(os.listdir(f"/proc/{pid}/task")) > 1 and _is_younger(pid, record)
    except PermissionError:
        # A process that hides from its own user. Root sees all, unless a container took that right away.
        return os.geteuid() in (0, _uid(pid)) and _is_younger(pid, record)
    owner = record.owner.encode()
    return any(
        entry.startswith(RUN_IDS) and owner in entry[len(RUN_IDS) :].split(b":") for entry in environment.split(b"\0")
    )


def _is_younger(pid: int, record: Record) -> bool:
    """Than the supervisor, or as old, as all of its descendants are."""
    return _stat(pid)[1] >= record.started


def _uid(pid: int) -> int:
    """The real uid. (The owner of /proc/PID is root for a process that hides.)"""
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    return int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])
