"""The command of each run: says that it lives, each few milliseconds, and writes to a resource behind a fence.

child.py FOLDER MODE SECONDS. Modes: deaf (ignores TERM), daemon (what lives is a grandchild in a session of its own).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from distlock.errors import StaleToken
from distlock.fence_register import FenceRegister


class _NotNow(Exception):
    pass


def _not_now() -> None:
    """A frozen child may have the register: others go on without a write."""
    raise _NotNow


def _stamp() -> bytes:
    return b"%d\n" % time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _write(folder: Path, lock: str, token: int) -> None:
    try:
        register = FenceRegister.locked(folder / f"{lock}.fence", lock, 0o600, _not_now)
    except _NotNow:
        return
    try:
        register.advance(token)
    except StaleToken:
        return
    else:
        accepted = os.open(folder / f"{lock}.accepted", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(accepted, b"%d %s" % (token, _stamp()))
        os.close(accepted)
    finally:
        register.close()


def _become_a_daemon() -> None:
    """The first process stays, as a service's does, until the daemon is gone."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        os.setsid()
        if os.fork():
            os._exit(0)
        return
    os.close(writing)
    os.read(reading, 1)
    sys.exit(0)


def main() -> None:
    folder, mode, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    lock, owner = os.environ["DISTLOCK_NAME"], os.environ["DISTLOCK_OWNER"]
    token = int(os.environ.get("DISTLOCK_FENCING_TOKEN", "0")) or None
    supervisor = os.getppid()
    if "deaf" in mode:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "daemon" in mode:
        _become_a_daemon()
    life = os.open(folder / f"{owner}.life", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    head = {"lock": lock, "owner": owner, "token": token, "supervisor": supervisor}
    os.write(life, json.dumps(head).encode() + b"\n")
    until = time.monotonic() + seconds
    count = 0
    while time.monotonic() < until:
        os.write(life, _stamp())
        if token and count % 20 == 0:
            _write(folder, lock, token)
        count += 1
        time.sleep(0.004)


if __name__ == "__main__":
    main()
