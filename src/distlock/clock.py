"""The one clock of lease decisions.

CLOCK_BOOTTIME goes on while the machine is suspended, as the server's clock does; time.monotonic() stands still then,
and wall clocks are set. Waits run on CLOCK_MONOTONIC, so nothing may wait long on a lease without looking here.
"""

from __future__ import annotations

import time

TICK = 0.1
"""No process waits longer than this (seconds) without comparing the clock with its deadline."""
NEVER = float("inf")
"""The deadline of a child that runs without a lease."""


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Instants of CLOCK_BOOTTIME can be compared under one boot id only."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def boottime_offset() -> float:
    """What the time namespace of this process adds to the host's CLOCK_BOOTTIME: 0 outside of one."""
    try:
        with open("/proc/self/timens_offsets", encoding="ascii") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0.0  # a kernel without time namespaces
    for clock, seconds, nanoseconds in map(str.split, lines):
        if clock == "boottime":
            return int(seconds) + int(nanoseconds) / 1e9
    return 0.0
