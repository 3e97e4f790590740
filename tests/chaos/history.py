"""What happened in a campaign: the lives of children, their fenced writes, and what was frozen meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Life:
    """A child that has run under a lock. Clocks are CLOCK_BOOTTIME of the one machine that all run on."""

    lock: str
    owner: str
    token: int | None
    supervisor: int
    """Pid of the process that was to end it."""
    stamps: Sequence[float]
    """When it lived, each few milliseconds, in order."""

    @property
    def first(self) -> float:
        return self.stamps[0]

    @property
    def last(self) -> float:
        return self.stamps[-1]


@dataclass(frozen=True)
class Write:
    """One that the register of a lock accepted, as it was written down while the register was locked."""

    token: int
    at: float


@dataclass(frozen=True)
class Freeze:
    """Everything of one run was stopped together, as a machine that sleeps."""

    supervisor: int
    began: float
    stopped: float
    """When the last of it had been told to stop."""
    continued: float
    """When the first of it was."""
    thawed: float
    """When the last of it was continued."""


@dataclass(frozen=True)
class Ended:
    """A run as its caller saw it."""

    lock: str
    supervisor: int
    code: int | None
    """None: it had to be killed after all, since it did not end."""
    took: float
    stderr: str


@dataclass(frozen=True)
class History:
    lives: Sequence[Life]
    writes: Mapping[str, Sequence[Write]]
    """By lock, in the order in which they were accepted."""
    freezes: Sequence[Freeze] = ()
    runs: Sequence[Ended] = ()
    leftovers: Sequence[str] = ()
    """What was found when all was over, and should not have been there."""


def lives_in(folder: Path) -> Iterator[Life]:
    """As child.py has written them. A child that was killed before its first stamp has had no life."""
    for path in sorted(folder.glob("*.life")):
        text = path.read_text().rpartition("\n")[0]  # a line that was being written when the end came
        head, *lines = text.splitlines() or [""]
        if lines:
            told = json.loads(head)
            stamps = [int(line) / 1e9 for line in lines]
            yield Life(told["lock"], told["owner"], told["token"], told["supervisor"], stamps)


def writes_in(folder: Path) -> dict[str, Sequence[Write]]:
    found: dict[str, Sequence[Write]] = {}
    for path in folder.glob("*.accepted"):
        rows = [line.split() for line in path.read_text().rpartition("\n")[0].splitlines()]
        found[path.stem] = [Write(int(token), int(at) / 1e9) for token, at in rows]
    return found
