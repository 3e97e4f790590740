"""Start-up, hand-off and memory of `distlock run` beside its peers, and the targets of the project.

Ends with 0 whether or not the targets are reached: the figures are for people.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # where the package is, not this file

from benchmarks import hand_off, memory, start_up
from benchmarks.etcd_server import etcd_server
from benchmarks.machine import compile_distlock, describe
from benchmarks.peers import ETCDCTL, Peer, environment, peers, program
from benchmarks.postgres_server import postgres_server
from benchmarks.processes import nothing_left_behind
from benchmarks.redis_groups import cluster, redlock, sentinel
from benchmarks.redis_server import redis_server
from benchmarks.report import Target, ratios, table, timings
from benchmarks.stamping_child import Child, make_child
from benchmarks.zookeeper_server import zookeeper_server

PYTHON = "python -c pass"


class Setting(NamedTuple):
    """What all three subjects need."""

    peers: Sequence[Peer]
    child: Child
    folder: Path
    environment: dict[str, str]
    starts: int
    waiters: int
    samples: int


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # not without ending what was started
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="distlock-benchmark-")))
        stack.enter_context(nothing_left_behind())
        etcd = stack.enter_context(etcd_server(folder))
        redis = stack.enter_context(redis_server(folder))
        groups = {
            "redis+sentinel": stack.enter_context(sentinel(folder)),
            "redis+cluster": stack.enter_context(cluster(folder)),
            "redlock": stack.enter_context(redlock(folder)),
        }
        zookeeper = stack.enter_context(zookeeper_server(folder))
        postgres = stack.enter_context(postgres_server())
        clean = environment(folder)
        child = make_child(folder, options.shell)
        counts = (options.starts, options.waiters, options.samples)
        setting = Setting(peers(folder, etcd, redis, groups, zookeeper, postgres), child, folder, clean, *counts)
        print(*describe(folder, clean), sep="\n", flush=True)
        targets: list[Target] = []
        for subject in (_start_up, _hand_off, _memory):
            print(flush=True)
            targets += subject(setting)
    print("\nTargets", *(target.line for target in targets), sep="\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=20, help="starts of each command in a sample")
    parser.add_argument("--waiters", type=int, default=16, help="waiters behind the holder")
    parser.add_argument("--samples", type=int, default=2, help="samples; the one with the smallest median counts")
    parser.add_argument("--shell", action="store_true", help="contenders run sh and date instead of a small C program")
    return parser.parse_args()


def _start_up(setting: Setting) -> list[Target]:
    compile_distlock()
    commands = {PYTHON: [sys.executable, "-c", "pass"]}
    commands |= {peer.name: [*peer.command("start-up"), program("true")] for peer in setting.peers}
    found = start_up.measure(commands, setting.environment, setting.starts, setting.samples)
    print(f"Start-up: `true` under a free lock. {setting.samples} samples of {setting.starts} starts, taken in turns.")
    print("Python finds its bytecode, as after pip install.")
    print(timings(found, PYTHON))
    times = ratios(found, PYTHON)
    return [
        Target(f"start-up, {peer.name}", times[peer.name], peer.start_up_limit, f"x {PYTHON}")
        for peer in setting.peers
        if peer.ours
    ]


def _hand_off(setting: Setting) -> list[Target]:
    compared, child, folder, clean, _, waiters, samples = setting
    found = hand_off.measure(compared, child, waiters, samples, folder, clean)
    print(f"Hand-off: from the end of one child to the start of the next. {waiters} waiters, all in the queue before")
    print(f"the holder goes; {samples} samples, taken in turns. The child that writes down both times: {child.what}.")
    print(timings(found, ETCDCTL))
    return [
        Target(
            f"hand-off to {waiters} waiters, {peer.name}",
            ratios(found, peer.yardstick)[peer.name],
            peer.hand_off_limit,
            f"x {peer.yardstick}",
        )
        for peer in compared
        if peer.ours
    ]


def _memory(setting: Setting) -> list[Target]:
    compared, child, folder, clean, _, waiters, _ = setting
    one = memory.measure(compared, child, 1, folder, clean)
    many = memory.measure(compared, child, waiters, folder, clean)
    print("Memory: PSS of a waiter, all its processes together; of the only one, and the median of many.")
    rows = [[peer.name, f"{one[peer.name].median:.1f}", f"{many[peer.name].median:.1f}"] for peer in compared]
    print(table(["MB", "the only one", f"one of {waiters}"], rows))
    return [
        Target(f"memory of the only waiter, {peer.name}", one[peer.name].median, 45, "MB")
        for peer in compared
        if peer.ours
    ]


if __name__ == "__main__":
    main()
