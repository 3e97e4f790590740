"""How long a command takes from before its start until it is reaped."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence

from .figures import Sample
from .processes import LONGEST_WAIT, kill


def measure(
    commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], starts: int, samples: int
) -> dict[str, list[Sample]]:
    """Milliseconds. The commands take turns, so that what else goes on in the machine hits all alike. A first run of
    each does not count: it makes what later ones find (bytecode, the lock's file, pages in memory)."""
    for command in commands.values():
        run(command, environment)
    found: dict[str, list[Sample]] = {name: [] for name in commands}
    for _ in range(samples):
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(starts):
            for name, command in commands.items():
                times[name].append(run(command, environment))
        for name, values in times.items():
            found[name].append(Sample.of(values))
    return found


def run(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Milliseconds of one run, without a terminal. Raises RuntimeError when it fails: that is no start to measure."""
    nothing = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    start = time.perf_counter()
    pid = os.posix_spawn(command[0], list(command), environment, file_actions=nothing, setsid=True)
    status = None
    handle = os.pidfd_open(pid)
    try:
        look = select.poll()
        look.register(handle, select.POLLIN)
        ended = look.poll(LONGEST_WAIT * 1000)
        if ended:
            _, status = os.waitpid(pid, 0)
        milliseconds = (time.perf_counter() - start) * 1000
    finally:
        os.close(handle)
        if status is None:
            kill(pid)
            os.waitpid(pid, 0)
    if status != 0:
        raise RuntimeError(f"{' '.join(command)}: " + ("did not end" if status is None else f"wait status {status}"))
    return milliseconds
