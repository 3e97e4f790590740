"""Commands that hold a lock or processes while they run, and are interrupted."""

from __future__ import annotations

import signal


def end_tidily() -> None:
    """A signal ends this process as an exception does: what was opened is closed, what is held is given back."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
