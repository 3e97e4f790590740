"""Errors of the core. The engines' are in distlock.backends.base, the exit code of each in distlock.cli.exits."""

from __future__ import annotations

from .backends.base import Busy, DistlockError


class UsageError(DistlockError):
    """What was typed cannot be meant: the message quotes the value and says what would do. Nothing has started yet."""


class CommandNotFound(DistlockError):
    """The child's COMMAND is in no folder of PATH, or the path given does not exist."""


class CommandNotExecutable(DistlockError):
    """The child's COMMAND exists and cannot be executed: no permission, a folder, or not a program."""


class InternalError(DistlockError):
    """distlock itself is at fault. A lock held at that moment is not promised to be released before its TTL is over."""


class StaleToken(DistlockError):
    """A fencing token that is not the one that counts: smaller than one that the resource has seen, or not the
    holder's."""


class MaxRunReached(DistlockError):
    """The child was stopped because it ran for longer than --max-run allows."""


class Skipped(DistlockError):
    """Nothing was to be done: the run's window is closed. No fault."""


class NestedRun(Busy):
    """The holder is a run that this one is nested in: waiting would be for ever."""


class LeaseExpiring(DistlockError):
    """Less of the lease is left than a side effect needs, or it is lost already: the side effect must not begin."""


class Cancelled(Exception):
    """Nobody wants the lock any more and the queue has been left. Not an error of anything: never shown."""
