"""Those who want the locks: each runs one job after the other, over a network of its own."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy import Proxy

from .history import Ended
from .sites import Site

CHILD = Path(__file__).with_name("child.py")
_WAIT = 15.0
_LONGEST = 90.0
"""Seconds after which a run that has not ended is a violation: the wait, the job, and each fault at its longest."""


@dataclass
class Worker:
    """One of them, with its proxies and the job that it runs now."""

    number: int
    site: Site
    folder: Path
    command: Sequence[str]
    locks: Sequence[str]
    environment: dict[str, str]
    ttl: float
    jobs: Sequence[float]
    modes: Sequence[str]
    random: random.Random
    proxies: list[Proxy] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    mode: str = ""
    """Of the child that is running."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _networks: ExitStack = field(default_factory=ExitStack)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        for server in self.site.servers:
            self.proxies.append(self._networks.enter_context(Proxy(server.port)))
        self.environment["DISTLOCK_BACKEND"] = self.site.url([f"127.0.0.1:{proxy.port}" for proxy in self.proxies])
        self._thread = threading.Thread(target=self._work, name=f"worker {self.number}")
        self._thread.start()

    def stop(self) -> None:
        """After the run that is under way."""
        self._stop.set()

    def join(self) -> None:
        if self._thread:
            self._thread.join()
        self._networks.close()

    def holds(self) -> dict[str, Any] | None:
        """What the child of the run that is under way says of itself; None if none lives, as far as is known."""
        process = self.process
        for path in self.folder.glob("*.life") if process else ():
            head = path.read_text().partition("\n")[0]
            if head and process and (told := json.loads(head))["supervisor"] == process.pid:
                return dict(told)
        return None

    def _work(self) -> None:
        while not self._stop.is_set():
            lock = self.random.choice(self.locks)
            self.mode = mode = self.random.choice(self.modes)
            seconds = self.random.choice(self.jobs)
            self._run(lock, mode, seconds)

    def _run(self, lock: str, mode: str, seconds: float) -> None:
        # A daemon that its dead parent leaves behind would be left alone, as the user's wish: here it is not.
        options = ["--ttl", str(self.ttl), "-w", str(_WAIT), "--descendants", "kill"]
        job = [sys.executable, str(CHILD), str(self.folder), mode, str(seconds)]
        began = time.monotonic()
        with (self.folder / f"worker-{self.number}.stderr").open("w+b") as stderr:
            self.process = process = subprocess.Popen(
                [*self.command, "run", *options, lock, "--", *job],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                env=self.environment,
                start_new_session=True,
            )
            code: int | None
            try:
                code = process.wait(_LONGEST)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                code = None
            self.process = None
            stderr.seek(0)
            words = stderr.read().decode(errors="replace").strip().replace("\n", " | ")
        self.ended.append(Ended(lock, process.pid, code, time.monotonic() - began, words))
