"""One campaign: workers and nemesis for so many seconds, then peace, and what the history proves.

Run as a program (``make chaos``) it does so for one engine after the other and prints what happened.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import clocks
from distlock.backends import open_backend
from distlock.backends.base import Backend, Environment, Unavailable
from distlock.clock import boottime
from distlock.supervise import tree
from processes import DISTLOCK, wait_until

from . import nemesis
from .checker import margins, violations
from .history import History, lives_in, writes_in
from .sites import SITES, Site
from .workers import Worker

TTL = 3.0
_RECOVERY = 8.0
"""Seconds beyond the TTL within which every lock is had again once all is well: a server that was killed has to start,
and a waiter on a host that vanished is dropped within 5."""


@dataclass(frozen=True)
class Result:
    history: History
    faults: Counter[str]
    found: list[str]

    def summary(self) -> str:
        lives, runs = self.history.lives, self.history.runs
        codes = Counter(str(run.code) for run in runs)
        told = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
        smallest = margins(self.history)[:1]
        margin = f"{smallest[0]:.3f} s" if smallest else "none"
        writes = sum(map(len, self.history.writes.values()))
        return (
            f"{len(runs)} runs ({told}), {len(lives)} grants with a life, {writes} fenced writes,"
            f" {sum(self.faults.values())} faults; smallest margin {margin}; {len(self.found)} violations"
        )


def run(
    engine: str,
    folder: Path,
    *,
    seed: int,
    seconds: float,
    workers: int = 5,
    locks: int = 2,
    faults: Sequence[str] = nemesis.ALL,
    jobs: Sequence[float] = (0.1, 0.5, 1.0, 2.0, 4.0),
    modes: Sequence[str] = ("plain", "plain", "deaf", "daemon", "deaf daemon"),
    cut_off: int = 3,
    command: Sequence[str] = (DISTLOCK,),
) -> Result:
    """``jobs`` are the seconds that they may last, ``modes`` child.py's; ``cut_off`` is how many workers at most are
    without a network at the same time. ``command`` may be a distlock that is broken on purpose."""
    folder.mkdir(exist_ok=True)
    server_folder, clock = folder / "server", folder / "clock"
    server_folder.mkdir()
    clock.write_text("0")
    environment = _environment(folder, clocks.built_in(folder), clock)
    names = [f"chaos-{number}" for number in range(locks)]
    with SITES[engine](server_folder) as site, ExitStack() as stack:
        team = [
            Worker(
                number,
                site,
                folder,
                command,
                names,
                dict(environment),
                TTL,
                jobs,
                modes,
                random.Random(f"{seed} {number}"),
            )
            for number in range(workers)
        ]
        for worker in team:
            stack.callback(worker.join)
            stack.callback(worker.stop)
            worker.start()
        bad = nemesis.Nemesis(site, team, command, clock, TTL, cut_off)
        bad.run(nemesis.schedule(seed, seconds, faults, TTL))
        for worker in team:
            worker.stop()
        for worker in team:
            worker.join()
        leftovers = list(_after_all(site, names, folder, team))
    (folder / "faults").write_text("\n".join(bad.log) + "\n")
    lives = list(lives_in(folder))
    runs = [one for worker in team for one in worker.ended]
    history = History(lives, writes_in(folder), bad.freezes, runs, leftovers)
    return Result(history, bad.done, violations(history))


def _environment(folder: Path, shim: Path, clock: Path) -> dict[str, str]:
    """With a wall clock that can be set, for the command and its children alone."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "DISTLOCK_STATE_DIR": str(folder / "state"),
        **clocks.with_shift(shim, time.CLOCK_REALTIME, clock),
    }


def _after_all(site: Site, names: Sequence[str], folder: Path, team: Sequence[Worker]) -> list[str]:
    """All is well again: every lock is to be had in time, and nothing of any run is left."""
    found = []
    url = site.url([f"127.0.0.1:{server.port}" for server in site.servers])
    environment = dict(team[0].environment, DISTLOCK_BACKEND=url)
    for name in names:
        words = [DISTLOCK, "run", "--ttl", str(TTL), "-w", str(TTL + _RECOVERY), name, "true"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            found.append(f"{name} is not had again: code {done.returncode}: {done.stderr.strip()}")
    backend = open_backend(url, Environment(boottime, lambda: folder / "state"))
    try:
        for name in names:
            wait_until(lambda name=name: _nothing_of(backend, name), 10.0, f"nothing of {name}")  # type: ignore[misc]
    except AssertionError as error:
        found.append(str(error).splitlines()[0])
    finally:
        backend.close()
    for life in lives_in(folder):
        found += [f"a process of {life.owner}: pid {process.pid}" for process in tree.with_owner(life.owner)]
    return found


def _nothing_of(backend: Backend, name: str) -> bool:
    try:
        state = backend.inspect(name, 5.0)
    except Unavailable:
        return False
    return not state.held and not state.waiters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", default=list(SITES), help="by default all")
    parser.add_argument("--seconds", type=float, default=240.0, help="of faults, for each engine")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--fault", action="append", choices=nemesis.ALL, help="only these")
    parser.add_argument("--keep", type=Path, help="a folder for all that was written down")
    options = parser.parse_args()
    kept = [options.keep / engine / "campaign" for engine in options.engines] if options.keep else []
    for folder in kept:
        if folder.exists():
            parser.error(f"{folder} is what an earlier campaign has written: remove it, or --keep another folder")
    bad = 0
    for engine in options.engines:
        with tempfile.TemporaryDirectory(prefix="distlock-chaos-") as made:
            folder = options.keep / engine if options.keep else Path(made)
            folder.mkdir(parents=True, exist_ok=True)
            result = run(
                engine,
                folder / "campaign",
                seed=options.seed,
                seconds=options.seconds,
                workers=options.workers,
                faults=options.fault or nemesis.ALL,
            )
        print(f"{engine}: {result.summary()}", flush=True)
        for what, count in sorted(result.faults.items()):
            print(f"    {count:5} x {what}")
        for line in result.found:
            print(f"  VIOLATION {line}", flush=True)
        bad += len(result.found)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
