"""The one table of exit codes. README, --help and the manual show it; a test keeps them alike."""

from __future__ import annotations

from distlock.backends.base import Busy, ConfigurationError, DistlockError, LeaseLost, Refused, Unavailable
from distlock.errors import CommandNotExecutable, CommandNotFound, InternalError, MaxRunReached, StaleToken, UsageError

USAGE = 2
INTERNAL = 70
CONFLICT = 75
CONFIGURATION = 78

_CODES: dict[type[DistlockError], int] = {
    UsageError: USAGE,
    StaleToken: 65,
    Unavailable: 69,
    InternalError: INTERNAL,
    Busy: CONFLICT,
    LeaseLost: 76,
    Refused: 77,
    ConfigurationError: CONFIGURATION,
    MaxRunReached: 124,
    CommandNotExecutable: 126,
    CommandNotFound: 127,
}

TABLE: tuple[tuple[str, str], ...] = (
    ("the child's", "it ran and ended by itself"),
    ("128+N", "it died of signal N, or signal N ended the waiting"),
    ("1", "doctor: warnings; drill: not proven; inspect -q: free; with --succeeded-within: no such run"),
    ("2", "usage error"),
    ("65", "stale fencing token (fence), wrong token (release)"),
    ("69", "backend unavailable: unreachable, no quorum, loading, read-only, damaged, unknown layout version"),
    ("70", "internal error (one line; traceback with -vv)"),
    ("75", "busy: not had with -n or within --wait (changed with -E)"),
    ("76", "lease lost: COMMAND was stopped because the lease could not be kept; check: not enough of it is left"),
    ("77", "refused: login, permission, or the class asked for"),
    ("78", "configuration error"),
    ("124", "--max-run reached: COMMAND was stopped"),
    ("126", "COMMAND not executable"),
    ("127", "COMMAND not found"),
)


def code_of(error: DistlockError) -> int:
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), INTERNAL)


def error_of(code: int) -> type[DistlockError]:
    """What a ``distlock run`` that ended with this code has met, if that is a fault of what it was to work with; an
    InternalError otherwise."""
    return next(
        (kind for kind in (Unavailable, Busy, Refused, ConfigurationError) if _CODES[kind] == code), InternalError
    )


def epilog() -> str:
    """For --help; the leading \\b keeps the lines as they are."""
    width = max(len(code) for code, _ in TABLE)
    return "\b\nExit codes:\n" + "\n".join(f"  {code:<{width}}  {meaning}" for code, meaning in TABLE)
