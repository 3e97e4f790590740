"""The one clock of lease decisions.

CLOCK_BOOTTIME goes on while the machine is suspended, as the server's clock does; time.monotonic() stands still then,
and wall clocks are set. Waits run on CLOCK_MONOTONIC, so nothing may wait long on a lease without looking here.
"""

from __future__ import annotations

import time

TICK = 0.1
"""No process waits longer than this (seconds) without comparing the clock with its deadline."""


def boottime() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
