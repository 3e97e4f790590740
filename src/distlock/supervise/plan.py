"""What a run is to do, complete and checked, before anything is done."""

import marshal
import signal
from typing import Literal, NamedTuple, Self

from ..account import Keeping
from ..backends.base import Safety
from ..window import Window
from .command import Command

Descendants = Literal["leave", "kill", "wait"]
DESCENDANTS: tuple[Descendants, ...] = ("leave", "kill", "wait")


class Plan(NamedTuple):
    name: str
    owner: str
    command: Command
    caller_environment: dict[bytes, bytes]
    backend: str
    """May hold a secret."""
    backend_shown: str
    password: str | None
    require: Safety | None
    ttl: float
    wait: float | None
    explain_conflict: bool
    """Whether a conflict will be shown to anybody: describing the holder costs a request."""
    grace: float
    max_run: float | None
    min_hold: float
    window: Window
    max_holders: int | None
    """None: it was not asked for, and the child is not told of an index."""
    fail_open: bool
    kill_signal: signal.Signals
    jitter: float
    label: str | None
    descendants: Descendants | None
    """None: leave, and say so if something of the child's process group is left."""
    verbosity: int
    keeping: Keeping
    strangers: frozenset[int]
    """Children that this process had before it became distlock (``exec distlock …`` in a script with background
    jobs). They are not of the run and are never signalled."""

    def to_bytes(self) -> bytes:
        """For a process of the same interpreter; pickle costs 3 ms to import."""
        plain = self._asdict() | {
            "command": tuple(self.command),
            "kill_signal": int(self.kill_signal),
            "keeping": self.keeping.plain(),
            "window": tuple(self.window),
        }
        return marshal.dumps(plain)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        plan = cls(**marshal.loads(data))
        return plan._replace(
            command=Command(*plan.command),
            kill_signal=signal.Signals(plan.kill_signal),
            keeping=Keeping.of_plain(plan.keeping),
            window=Window(*plan.window),
        )
