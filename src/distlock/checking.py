"""``distlock check``: whether the lease that a job runs under is good for a side effect that is about to begin.

Asks the file that the renewer keeps, by its boot id and its clock; no client library is loaded. Whatever cannot be
shown counts as lost: a job that asks would rather stop than be late.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from .backends.base import LeaseLost
from .clock import boot_id, boottime_offset
from .durations import format_duration
from .quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping


_LAYOUT = 1
"""Of the file that leasefile.py writes."""


class OwnLease(NamedTuple):
    """The lease of the run around this process, as its file says."""

    name: str
    owner: str
    token: int | None
    backend: str
    soft: float
    hard: float
    """Instants on CLOCK_BOOTTIME as this process reads it."""
    holder_index: int = 0


def own_lease(environment: Mapping[str, str]) -> OwnLease:
    """Raises LeaseLost, also when there is no lease that could be shown."""
    owner, path = environment.get("DISTLOCK_OWNER"), environment.get("DISTLOCK_LEASE")
    if not owner:
        raise LeaseLost("no lease: not inside of a distlock run (DISTLOCK_OWNER is not set)")
    if not path:
        raise LeaseLost(
            "no lease can be shown: DISTLOCK_LEASE is not set; this run has no lock (--fail-open), or could not write"
            " a lease file"
        )
    try:
        with open(path, encoding="utf-8") as file:
            lease, written_on, offset = _read(json.load(file))
    except FileNotFoundError:
        raise LeaseLost("the lease is lost, or given back: its file is gone") from None
    except OSError as error:
        raise LeaseLost(f"no lease can be shown: {quoted(path)}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LeaseLost(f"no lease can be shown: {quoted(path)} is no lease file that this release knows") from None
    if lease.owner != owner:
        raise LeaseLost(f"{quoted(lease.name)}: the lease file is another run's ({quoted(lease.owner)})")
    if written_on != boot_id():
        raise LeaseLost(f"{quoted(lease.name)}: the lease is from before a reboot, or from another host")
    shift = boottime_offset() - offset
    return lease._replace(soft=lease.soft + shift, hard=lease.hard + shift)


def _read(content: dict[str, str | int | float | None]) -> tuple[OwnLease, str, float]:
    """The lease, the boot it was written in, what the writer's clock was shifted by. Raises ValueError and the like."""
    if content["version"] != _LAYOUT:
        raise ValueError(content["version"])
    name, owner, backend, boot = (content[key] for key in ("name", "owner", "backend", "boot_id"))
    numbers = [content[key] for key in ("soft_deadline_boottime", "hard_deadline_boottime", "boottime_offset_seconds")]
    token, index = content["token"], content.get("holder_index", 0)  # files of earlier releases have none
    if not all(isinstance(text, str) for text in (name, owner, backend, boot)) or isinstance(token, str | float):
        raise TypeError
    if not isinstance(index, int):
        raise TypeError
    soft, hard, offset = (float(number) for number in numbers if isinstance(number, int | float))
    return OwnLease(str(name), str(owner), token, str(backend), soft, hard, index), str(boot), offset


def check_time_left(lease: OwnLease, need: float | None, now: float) -> None:
    """Whether ``need`` seconds are left until everything of the job is dead; without it, whether the job has not been
    told to stop yet. Raises LeaseLost."""
    left = lease.hard - now
    if left <= 0:
        raise LeaseLost(f"{quoted(lease.name)}: the lease was over {format_duration(-left)} ago")
    if need is None and now >= lease.soft:
        raise LeaseLost(f"{quoted(lease.name)}: the lease is about to end, in {format_duration(left)}")
    if need is not None and left < need:
        raise LeaseLost(
            f"{quoted(lease.name)}: {format_duration(left)} of the lease are left, {format_duration(need)} are needed"
        )
