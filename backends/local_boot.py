"""Which host this is, its clock, and how long a record in a lock database has stood unchanged.

CLOCK_BOOTTIME begins anew at each boot and is shifted inside a time namespace. Readings can be compared only between
processes of one boot, with the shift taken out. Boot id and machine id tell boots apart, but a container can be given
ones of its own, so "another boot" proves that the writer is gone only outside of containers.
"""

import os
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from .base import Unavailable

if TYPE_CHECKING:
    from .local_record import Record

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""A constant of the kernel (PROC_PID_INIT_INO): the namespace of a host that is nobody's container."""

CONTAINER_MARKS = ("/run/.containerenv", "/.dockerenv", "/run/systemd/container")


class Host(NamedTuple):
    """What a record says about the process that wrote it."""

    boot: str
    machine: str
    contained: bool
    namespace: str
    """The pid namespace, or '' where /proc shows another one than ours and pids say nothing."""
    shift: float
    """What a time namespace adds to CLOCK_BOOTTIME."""

    @classmethod
    def read(cls) -> Self:
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            ours = os.readlink("/proc/self") == str(os.getpid())
            namespace = os.readlink("/proc/self/ns/pid") if ours else ""
        except OSError as error:
            raise Unavailable(f"local locks need /proc: {error}", permanent=True) from error
        contained = namespace != INITIAL_PID_NAMESPACE or any(map(os.path.exists, CONTAINER_MARKS))
        return cls(boot, _text("/etc/machine-id").strip(), contained, namespace, _shift())


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _shift() -> float:
    for line in _text("/proc/self/timens_offsets").splitlines():
        clock, seconds, nanoseconds = line.split()
        if clock == "boottime":
            return int(seconds) + int(nanoseconds) / 1e9
    return 0.0  # a kernel without time namespaces


class Ages:
    """How long a record is known to have stood unchanged, in seconds.

    Of the same boot: by its clock. Of an earlier boot of this machine: for ever. Of a boot that may be running
    elsewhere (a container beside us): since this object first saw it, so only a lasting object learns anything.
    """

    def __init__(self, host: Host, clock: Callable[[], float]) -> None:
        self._host = host
        self._clock = clock
        self._watched: dict[int, tuple[str, int, float]] = {}  # by index: owner, changes, since when

    def now(self) -> float:
        """The host's clock, the same in all its time namespaces."""
        return self._clock() - self._host.shift

    def age(self, record: "Record", now: float) -> float:
        if record.boot == self._host.boot and record.changed <= now:
            return now - record.changed
        if (
            record.boot != self._host.boot
            and record.machine == self._host.machine != ""
            and not record.contained
            and not self._host.contained
        ):
            return inf
        owner, changes, since = self._watched.get(record.holder_index, ("", -1, 0.0))
        if (owner, changes) != (record.owner, record.changes):
            since = now
            self._watched[record.holder_index] = (record.owner, record.changes, since)
        return now - since
