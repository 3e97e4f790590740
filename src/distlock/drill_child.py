"""The job of the drill: it writes to the fenced resource all the time, and notes what came of each write.

Run as ``python -m distlock.drill_child REGISTER LOG``. A line in LOG is the clock (CLOCK_BOOTTIME) before the
write, and ``accepted`` or ``refused``. Nothing stops it but a signal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from .clock import boottime
from .errors import StaleToken
from .fence_register import FenceRegister
from .fence_token import token_of

RESOURCE = "the drill's resource"
_EVERY = 0.005


def main(register: str, log: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a job that does not listen: the worst there is
    token = token_of(os.environ)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        begun = boottime()
        outcome = "accepted" if _write(Path(register), token) else "refused"
        os.write(file, f"{begun:.4f} {outcome}\n".encode())
        time.sleep(_EVERY)


def _write(register: Path, token: int) -> bool:
    fence = FenceRegister.locked(register, RESOURCE, 0o600, lambda: None)
    try:
        fence.advance(token)
    except StaleToken:
        return False
    finally:
        fence.close()
    return True


if __name__ == "__main__":
    main(*sys.argv[1:])
