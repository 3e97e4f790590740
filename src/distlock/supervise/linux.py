"""The three prctl(2) calls of the supervision. Loads ctypes; imported by the supervisor after the renewer is forked."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def become_subreaper() -> None:
    """Orphans among our descendants become our children, so that a double fork or setsid does not hide them."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """SIGKILL for this process when the thread that forked it ends. The caller must compare getppid() afterwards: a
    parent that died before this call sends nothing."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)


def dump_no_core() -> None:
    """So that dying of the child's signal does not write a second core file."""
    _prctl(_SET_DUMPABLE, 0)
