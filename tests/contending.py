"""Somebody who wants the lock all the time, and notes when it could first have been had."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from distlock.backends import open_backend
from distlock.backends.base import Client, Environment, Grant, Request, Unavailable
from distlock.clock import boottime
from processes import wait_until


class Contender:
    """Polls through the contract each few milliseconds, in a thread. ``granted_at`` is the clock just after the poll
    that was granted: nothing of the old holder may have lived then. (A poll may wait for the old holder's release, so
    that the clock before it says nothing; it is the length of one poll that the figure is too late by.)"""

    def __init__(self, backend: str, name: str, folder: Path, holders: int = 1) -> None:
        self._backend = open_backend(backend, Environment(boottime, lambda: folder))
        client = Client(os.urandom(16).hex(), "contender", os.getpid(), "tests", "contender", None, time.time())
        self._request = Request(name, 3.0, client, holders)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.grant: Grant | None = None
        self.granted_at = float("inf")

    def _run(self) -> None:
        """A server that is away is asked again: it is its outage that many tests are about."""
        while not self._stop.is_set() and self.grant is None:
            try:
                self._contend()
            except Unavailable:
                time.sleep(0.003)

    def _contend(self) -> None:
        with self._backend.enqueue(self._request) as ticket:
            while not self._stop.is_set():
                grant = ticket.poll()
                if grant:
                    self.granted_at = boottime()
                    self.grant = grant
                    return
                time.sleep(0.003)

    def wait(self, seconds: float) -> float:
        """When the grant came."""
        wait_until(lambda: self.grant, seconds, "the contender's grant")
        return self.granted_at

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._backend.close()
