"""Locked bytes: how waiters and the holder show that they live, and how the next in line learns that one is gone.

Each ticket keeps one byte of the lock's queue file write-locked, far behind the bytes that exist. The lock is of the
kind that belongs to an open file description (F_OFD_*): the kernel drops it with the process, whatever killed it, and
no other process' close() touches it. Whoever waits for a byte asks for a read lock, so that several may, and unlocks
again at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading

_FIRST_BYTE = 2**40
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock: l_type, l_whence, l_start, l_len, l_pid (0 for the F_OFD_* commands)."""


def _flock(kind: int, ticket: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, _FIRST_BYTE + ticket, 1, 0)


def lock_byte(descriptor: int, ticket: int) -> bool:
    """False if another open file has it."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, ticket))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def unlock_byte(descriptor: int, ticket: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, ticket))


def byte_is_locked(descriptor: int, ticket: int) -> bool:
    """By another open file than this one: one's own lock is never in one's way."""
    answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _flock(fcntl.F_RDLCK, ticket))
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


class Watcher:
    """Makes ``event`` (an eventfd) readable when the byte of one other ticket is let go of.

    A thread, since a blocking lock is the only notice that the kernel gives. It cannot be called back: it ends with
    the process or when that byte is free. So it works on duplicates of its own, which nobody else closes.
    """

    def __init__(self, descriptor: int, event: int, ticket: int) -> None:
        self.ticket = ticket
        self._descriptor = os.dup(descriptor)
        self._event = os.dup(event)
        threading.Thread(target=self._run, name="distlock-queue", daemon=True).start()

    def _run(self) -> None:
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLKW, _flock(fcntl.F_RDLCK, self.ticket))
            unlock_byte(self._descriptor, self.ticket)
        except OSError:
            pass  # ENOLCK: the waiter then looks once a second, as it does anyway
        finally:
            os.eventfd_write(self._event, 1)
            os.close(self._descriptor)
            os.close(self._event)
