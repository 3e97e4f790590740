"""What goes wrong, and when: drawn from a seed beforehand, so that the same seed does the same again."""

from __future__ import annotations

import heapq
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from distlock.clock import boottime
from distlock.supervise import tree
from proxy import Proxy

from .history import Freeze
from .sites import Site
from .workers import Worker


class Fault(NamedTuple):
    at: float
    """Seconds since the beginning."""
    what: str
    which: float
    """Whom it meets: from 0 to 1, over those that there are then."""
    lasts: float


PROCESSES = ("kill supervisor", "kill renewer", "kill both", "kill child", "stop supervisor", "stop renewer")
EVERYTHING = ("stop everything",)
CALLER = ("terminate", "take away")
NETWORK = ("black hole", "refuse", "late answers", "late requests", "late, then a black hole")
SERVERS = ("freeze server", "restart server")
CLOCKS = ("set clock",)
_LATE = 0.26, 0.32
"""Parts of a TTL: a try waits for a third of it for its answer."""
_LOOK = 0.1
_PATIENCE = 80
_LONG = 4.0

ALL = (*PROCESSES, *EVERYTHING, *CALLER, *NETWORK, *SERVERS, *CLOCKS)


def schedule(seed: int, seconds: float, faults: Sequence[str], ttl: float) -> list[Fault]:
    draw = random.Random(seed)
    found: list[Fault] = []
    at = 1.0
    while at < seconds:
        what = draw.choice(faults)
        longest = 2.0 if what in EVERYTHING else 1.3
        found.append(Fault(at, what, draw.random(), draw.uniform(0.1, longest) * ttl))
        at += draw.expovariate(1 / 0.6)
    return found


class Nemesis:
    """Does what the schedule says. ``done`` counts what it could do: there may be nobody to meet just then."""

    def __init__(
        self, site: Site, workers: Sequence[Worker], command: Sequence[str], clock: Path, ttl: float, at_most: int
    ) -> None:
        """``at_most`` so many workers are cut off at once."""
        self._site = site
        self._workers = workers
        self._command = command
        self._clock = clock
        self._ttl = ttl
        self._at_most = at_most
        self._later: list[tuple[float, int, Callable[[], object]]] = []
        self._hurt: set[int] = set()  # ports of servers
        self._cut_off: set[int] = set()  # numbers of workers
        self.done: Counter[str] = Counter()
        self.freezes: list[Freeze] = []
        self.log: list[str] = []

    def run(self, faults: Sequence[Fault]) -> None:
        """Until the last one is over."""
        began = time.monotonic()
        for fault in faults:
            self._undo_until(began + fault.at)
            if self._do(fault):
                self.done[fault.what] += 1
                self.log.append(f"{boottime():.3f} {fault.what} {fault.which:.3f} for {fault.lasts:.3f}")
        self._undo_until(float("inf"))

    def _undo_until(self, instant: float) -> None:
        while self._later and self._later[0][0] <= instant:
            due, _, undo = heapq.heappop(self._later)
            time.sleep(max(0.0, due - time.monotonic()))
            undo()
        if instant < float("inf"):
            time.sleep(max(0.0, instant - time.monotonic()))

    def _after(self, seconds: float, undo: Callable[[], object]) -> None:
        heapq.heappush(self._later, (time.monotonic() + seconds, id(undo), undo))

    def _do(self, fault: Fault) -> bool:
        if fault.what in SERVERS:
            return self._hurt_server(fault)
        if fault.what in CLOCKS:
            self._clock.write_text(str(round((fault.which - 0.5) * 7200)))
            return True
        if fault.what in NETWORK:
            waiting = fault.what == "late, then a black hole"
            fit = [one for one in self._workers if (one.holds() is None) == waiting] or self._workers
            return self._hurt_network(fit[int(fault.which * len(fit))], fault)
        worker = self._workers[int(fault.which * len(self._workers))]
        process = worker.process
        if process is None:
            return False
        if fault.what == "take away":
            return self._take_away(worker)
        if fault.what == "kill both" and "daemon" in worker.mode:
            return False  # nobody is left to end what the command had started: docs/supervision.md says so
        return self._hurt_run(process.pid, fault)

    # -- the processes of one run ------------------------------------------------------------------------------------

    def _hurt_run(self, supervisor: int, fault: Fault) -> bool:
        below = tree.descendants(supervisor, frozenset())
        renewers = [one.pid for one in below if _comm(one.pid) == "distlock-renew"]
        others = [one.pid for one in below if one.pid not in renewers and _comm(one.pid) != "distlock-parked"]
        what = fault.what
        if what == "terminate":
            return _signal([supervisor], signal.SIGTERM)
        if what == "kill supervisor":
            return _signal([supervisor], signal.SIGKILL)
        if what == "kill renewer":
            return _signal(renewers, signal.SIGKILL)
        if what == "kill both":
            return _signal([*renewers, supervisor], signal.SIGKILL)
        if what == "kill child":
            return _signal(others[:1], signal.SIGKILL)
        whom = {"stop supervisor": [supervisor], "stop renewer": renewers}.get(what)
        if whom is None:
            return self._freeze(supervisor, fault.lasts)
        if not _signal(whom, signal.SIGSTOP):
            return False
        self._after(fault.lasts, lambda: _signal(whom, signal.SIGCONT))
        return True

    def _freeze(self, supervisor: int, seconds: float) -> bool:
        everything = [supervisor]
        began = boottime()
        if not _signal(everything, signal.SIGSTOP):
            return False
        # What was started while others were being stopped is there at the next look: what is stopped starts nothing.
        while more := [one.pid for one in tree.descendants(supervisor, frozenset()) if one.pid not in everything]:
            _signal(more, signal.SIGSTOP)
            everything += more
        stopped = boottime()

        def thaw() -> None:
            continued = boottime()
            _signal(everything[::-1], signal.SIGCONT)  # the child first: it has the longest start
            self.freezes.append(Freeze(supervisor, began, stopped, continued, boottime()))

        self._after(seconds, thaw)
        return True

    def _take_away(self, worker: Worker) -> bool:
        """As an operator does: only this holder, and nobody gets the lock before its job is dead."""
        told = worker.holds()
        if told is None:
            return False
        owner = ["--owner", told["owner"]] if told["token"] is None else ["--token", str(told["token"])]
        words = [*self._command, "release", told["lock"], *owner, "--yes"]
        released = subprocess.Popen(words, env=worker.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._after(1.0, released.wait)
        return True

    # -- the rest of the world ---------------------------------------------------------------------------------------

    def _hurt_network(self, worker: Worker, fault: Fault) -> bool:
        if not worker.proxies or worker.number in self._cut_off or len(self._cut_off) >= self._at_most:
            return False
        self._cut_off.add(worker.number)
        over = fault.lasts
        if fault.what == "black hole":
            _each(worker, Proxy.black_hole)
        elif fault.what == "refuse":
            _each(worker, Proxy.refuse)
        elif fault.what == "late requests":
            # So late that what is done for a lease comes when the next one has begun.
            late = (0.78 + 0.17 * fault.which) * self._ttl
            _each(worker, lambda proxy: proxy.delay_requests(late))
            over = 2 * late
        elif fault.what == "late answers":
            _each(worker, lambda proxy: proxy.delay_answers(fault.lasts / 2))
            over = 2 * fault.lasts
        else:
            # A grant that is heard when much of its lease is over, and then nothing until that has run out.
            _each(
                worker, lambda proxy: proxy.delay_answers((_LATE[0] + (_LATE[1] - _LATE[0]) * fault.which) * self._ttl)
            )
            self._cut_off_next_holder(worker, worker.holds(), _PATIENCE)
            return True
        self._after(over, lambda: self._reconnect(worker))
        return True

    def _cut_off_next_holder(self, worker: Worker, before: object, tries: int) -> None:
        """As soon as the worker holds a lock that it does not hold already; after so many looks, let it be."""
        if worker.holds() not in (None, before):
            _each(worker, Proxy.black_hole)
            self._after(_LONG, lambda: self._reconnect(worker))
        elif tries:
            self._after(_LOOK, lambda: self._cut_off_next_holder(worker, before, tries - 1))
        else:
            self._reconnect(worker)

    def _reconnect(self, worker: Worker) -> None:
        self._cut_off.discard(worker.number)
        _each(worker, Proxy.let_pass)

    def _hurt_server(self, fault: Fault) -> bool:
        """One at a time: an engine of several must bear that, and one of a single server is away."""
        if self._hurt or not self._site.servers:
            return False
        server = self._site.servers[int(fault.which * len(self._site.servers))]
        self._hurt.add(server.port)

        def well() -> None:
            server.thaw() if fault.what == "freeze server" else server.start()
            self._hurt.discard(server.port)

        server.freeze() if fault.what == "freeze server" else server.kill()
        self._after(fault.lasts, well)
        return True


def _each(worker: Worker, do: Callable[[Proxy], object]) -> None:
    for proxy in worker.proxies:
        do(proxy)


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _signal(pids: Sequence[int], number: signal.Signals) -> bool:
    """Whether any of them was there to get it."""
    delivered = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            delivered += 1
    return delivered > 0
