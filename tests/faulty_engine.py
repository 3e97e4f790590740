"""The command with an engine whose renewals go wrong inside the program: ``faulty:HOW:URL``.

The locks are those of the backend at URL, so that anybody may contend for them.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import ClassVar, Self, final

from distlock import backends
from distlock.backends.base import Backend, Environment, Grant, LockState, Mark, Marked, Request, Safety, Ticket
from distlock.backends.probe import Probe
from distlock.cli.main import main


@final
class FaultyBackend(Backend):
    safety: ClassVar[Safety] = "efficiency"
    exclusive_until: ClassVar[str] = "as inside"
    token_scope: ClassVar[str] = "as inside"
    fifo: ClassVar[bool] = True
    keeps: ClassVar[bool] = True

    def __init__(self, how: str, inner: Backend) -> None:
        self._how = how
        self._inner = inner

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        _, how, inner = url.split(":", 2)
        return cls(how, backends.open_backend(inner, environment))

    def renew(self, grant: Grant, timeout: float) -> Grant:
        if self._how == "raises":
            raise RuntimeError("nobody foresaw this")
        if self._how == "exits":
            sys.exit(3)
        if self._how == "crashes":
            os.abort()
        if self._how == "hangs":  # and honours no time-out
            threading.Event().wait()
        if self._how == "hogs":  # the interpreter's lock: no other thread of the process runs
            ctypes.PyDLL(None).usleep(20_000_000)
        return self._inner.renew(grant, timeout)

    def enqueue(self, request: Request) -> Ticket:
        return self._inner.enqueue(request)

    def alarm(self, grant: Grant) -> int | None:
        return self._inner.alarm(grant)

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        return self._inner.shortcomings(timeout)

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        self._inner.release(grant, timeout, marks, keep_for)

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        self._inner.mark(grant, mark, timeout)

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        return self._inner.marked(name, slot, timeout)

    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        return self._inner.revoke(name, token, owner, by, timeout, now=now)

    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        return self._inner.advance_fence(resource, index, token, timeout)

    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        self._inner.reset_fence(resource, index, timeout)

    def inspect(self, name: str, timeout: float) -> LockState:
        return self._inner.inspect(name, timeout)

    def probe(self, timeout: float) -> Probe:
        return self._inner.probe(timeout)

    def purge(
        self, wanted: Callable[[str], bool], unused_for: float, timeout: float, *, fences: bool = False
    ) -> Iterator[str]:
        return self._inner.purge(wanted, unused_for, timeout, fences=fences)

    def locks(self, timeout: float) -> Iterator[LockState]:
        return self._inner.locks(timeout)

    def places(self, name: str) -> tuple[str, ...]:
        return self._inner.places(name)

    def close(self) -> None:
        self._inner.close()


if __name__ == "__main__":
    backends.SCHEMES["faulty"] = "faulty_engine:FaultyBackend"
    main()
