"""What a history proves, or refutes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from .history import Freeze, History, Life

STOPPING = 0.005
"""Seconds within which a process that was told to stop does."""
AWAKE = 0.2
"""Seconds after a thaw of everything within which a child may yet be seen: nothing of the program ran before."""
CODES = {0, 69, 75, 76, -9, -15}
"""That a run may end with in a campaign: done, backend away, not had in time, lost, killed, ended by the signal."""
NOTHING_STARTED = (
    "distlock: the renewer ended before it got the lock; nothing was started",
    "distlock: the process that waited to become COMMAND was killed; nothing was started",
)
"""With code 70, of a run that was waiting when a process of it was killed."""


def violations(history: History) -> list[str]:
    """A line for each promise that was broken; nothing, if the history could have been that of a sound lock."""
    by_lock: dict[str, list[Life]] = defaultdict(list)
    for life in history.lives:
        by_lock[life.lock].append(life)
    found: list[str] = []
    for lives in by_lock.values():
        found += _two_at_once(_in_order_of_grant(lives), history.freezes)
        found += _tokens(lives)
    found += _fences(history)
    found += _ends(history)
    found += [f"left behind: {what}" for what in history.leftovers]
    return found


def _in_order_of_grant(lives: Sequence[Life]) -> list[Life]:
    """By token; where there is none, by their first sign of life."""
    return sorted(lives, key=lambda life: (life.token or 0, life.first))


def _two_at_once(lives: Sequence[Life], freezes: Sequence[Freeze]) -> Iterator[str]:
    """The earlier holder's child is dead before the later one's lives. Where everything of the earlier was frozen
    together nothing can be: then it is dead AWAKE after the thaw."""
    for earlier, later in combinations(lives, 2):
        if earlier.last < later.first:
            continue
        frozen = [freeze for freeze in freezes if freeze.supervisor == earlier.supervisor]
        late = [
            stamp
            for stamp in earlier.stamps
            if stamp >= later.first and not any(_excused(stamp, freeze) for freeze in frozen)
        ]
        if late:
            yield (
                f"two at once: {earlier.lock}: {_name(earlier)} lived {late[-1] - later.first:.3f} s into the life of"
                f" {_name(later)}"
            )


def _excused(stamp: float, freeze: Freeze) -> bool:
    """Not in between: a child that was not frozen with the others is found."""
    return freeze.began <= stamp <= freeze.stopped + STOPPING or freeze.continued <= stamp <= freeze.thawed + AWAKE


def _tokens(lives: Sequence[Life]) -> Iterator[str]:
    """No token twice, and a life that begins after another one has ended has the greater token."""
    known = [life for life in lives if life.token is not None]
    for one, other in combinations(sorted(known, key=lambda life: life.first), 2):
        assert one.token is not None
        assert other.token is not None
        if one.token == other.token or (one.last < other.first and one.token > other.token):
            yield f"tokens: {one.lock}: {_name(one)} came before {_name(other)}"


def _fences(history: History) -> Iterator[str]:
    for lock, writes in history.writes.items():
        greatest = -1
        for write in writes:
            if write.token < greatest:
                yield f"fence: {lock}: token {write.token} was accepted after {greatest}"
            greatest = max(greatest, write.token)


def _ends(history: History) -> Iterator[str]:
    for run in history.runs:
        if run.code is None:
            yield f"no end: {run.lock}: pid {run.supervisor} had to be killed after {run.took:.1f} s: {run.stderr}"
        elif run.code == 70 and run.stderr in NOTHING_STARTED:
            continue
        elif run.code not in CODES:
            yield f"code {run.code}: {run.lock}: {run.stderr}"
        elif "Traceback" in run.stderr or "internal error" in run.stderr:
            yield f"words: {run.lock}: {run.stderr}"


def _name(life: Life) -> str:
    return f"{life.owner[:8]} (token {life.token})"


def margins(history: History) -> list[float]:
    """Seconds from the last sign of each life to the first of the next one of the same lock, the smallest first."""
    by_lock: dict[str, list[Life]] = defaultdict(list)
    for life in history.lives:
        by_lock[life.lock].append(life)
    return sorted(
        later.first - earlier.last
        for lives in by_lock.values()
        for ordered in [_in_order_of_grant(lives)]
        for earlier, later in pairwise(ordered)
    )
