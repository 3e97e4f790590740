"""The command, broken on purpose in one place: what a checker that has teeth must find. broken.py HOW run …"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distlock.backends.base import Grant
from distlock.backends.redis import RedisBackend
from distlock.cli.main import main
from distlock.clock import boottime
from distlock.renewal import Renewal, Schedule
from distlock.supervise import renewer
from distlock.supervise.holding import Holding


def late_deadline() -> None:
    """The lease is counted from when the answer came, not from when the request was sent."""
    renewed = Schedule.renewed

    def counted_too_late(self: Schedule, grant: Grant) -> None:
        renewed(self, grant._replace(valid_from=max(grant.valid_from, boottime())))

    Schedule.renewed = counted_too_late  # type: ignore[method-assign]


def careless_release() -> None:
    """At its end a run deletes the key, whoever's it is by now: the classic of home-made Redis locks."""
    give_back = vars(renewer)["give_back"]

    def and_delete(backend: RedisBackend, renewal: Renewal, *rest: Any, **more: Any) -> str:
        trouble = str(give_back(backend, renewal, *rest, **more))
        host, port = backend.reach.address.rsplit(":", 1)
        with suppress(OSError), socket.create_connection((host, int(port)), 1.0) as connection:
            connection.sendall(f"DEL lock:{renewal.grant.name}\r\n".encode())
            connection.recv(100)
        return trouble

    vars(renewer)["give_back"] = and_delete


def deaf_supervisor() -> None:
    """A dead renewer is nobody's business: the supervisor has no clock of its own."""
    Holding._next_deadline = lambda _: float("inf")  # type: ignore[method-assign, assignment]
    Holding._is_lost = lambda _: False  # type: ignore[method-assign, assignment]


VARIANTS: dict[str, Callable[[], None]] = {
    "late-deadline": late_deadline,
    "careless-release": careless_release,
    "deaf-supervisor": deaf_supervisor,
}


if __name__ == "__main__":
    VARIANTS[sys.argv.pop(1)]()
    main()
