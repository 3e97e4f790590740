"""What contenders run under the lock: as little as possible, and the same for every tool.

It appends ``S PID NANOSECONDS`` when it starts and ``E PID NANOSECONDS`` when it ends, and between the two waits at
the gate if it was given one: a FIFO that nobody has opened for writing yet. It does not wait there for ever, so that
nothing stays behind a benchmark that was killed.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

_C = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void stamp(int file, char what) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    char line[64];
    long long nanoseconds = now.tv_sec * 1000000000LL + now.tv_nsec;
    int length = snprintf(line, sizeof line, "%c %d %lld\n", what, (int)getpid(), nanoseconds);
    if (write(file, line, length) != length) _exit(1);
}

int main(int count, char **words) {
    int file = open(words[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return 1;
    stamp(file, 'S');
    alarm(120);
    if (count > 2 && open(words[2], O_RDONLY) < 0) return 1;
    stamp(file, 'E');
    return 0;
}
"""

_SH = 'echo "S $$ $(date +%s%N)" >>"$0"; [ $# -eq 0 ] || timeout 120 cat "$1"; echo "E $$ $(date +%s%N)" >>"$0"'


class Child(NamedTuple):
    what: str
    words: Callable[[Path, Path | None], list[str]]
    """The command line, for a file of stamps and a gate."""


def make_child(folder: Path, shell: bool = False) -> Child:
    """The C program where there is a compiler, unless the shell is asked for. Starting it costs a tenth of what sh and
    date do, which every tool pays alike: with those the ratios are nearer to one."""
    compiler = None if shell else shutil.which("cc")
    if compiler is None:
        return Child("sh and date", lambda stamps, gate: ["sh", "-c", _SH, *_paths(stamps, gate)])
    source, program = folder / "child.c", folder / "child"
    source.write_text(_C)
    subprocess.run([compiler, "-O2", "-Wall", "-o", program, source], check=True, timeout=60)
    return Child("a small C program", lambda stamps, gate: [str(program), *_paths(stamps, gate)])


def _paths(stamps: Path, gate: Path | None) -> list[str]:
    return [str(stamps), *([] if gate is None else [str(gate)])]


class Turn(NamedTuple):
    """One child's life in nanoseconds of one clock."""

    start: int
    end: int


def turns(text: str) -> list[Turn]:
    """In the order of their starts; children that have not ended yet are left out."""
    starts: dict[str, int] = {}
    found = []
    for line in text.splitlines():
        what, pid, nanoseconds = line.split()
        if what == "S":
            starts[pid] = int(nanoseconds)
        else:
            found.append(Turn(starts.pop(pid), int(nanoseconds)))
    return sorted(found)


def gaps(found: Sequence[Turn]) -> list[float]:
    """Milliseconds from each end to the next start. Raises RuntimeError when two ran at once: no figure counts then."""
    between = [(later.start - earlier.end) / 1e6 for earlier, later in itertools.pairwise(found)]
    if any(gap < 0 for gap in between):
        raise RuntimeError(f"two held the lock at once: {found}")
    return between
