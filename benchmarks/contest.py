"""A holder and a queue behind it, all of one tool."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .peers import Peer
from .processes import LONGEST_WAIT, end, wait_until
from .stamping_child import Child, Turn, turns


class Contest:
    def __init__(self, waiters: list[int], gate: Path, stamps: Path, contenders: list[subprocess.Popen[bytes]]) -> None:
        self.waiters = waiters
        """The pids that stand in the queue."""
        self._gate = gate
        self._stamps = stamps
        self._contenders = contenders

    def release(self) -> list[Turn]:
        """Let the holder go, and all others after it; the turns that they had."""
        wait_until(self._open_gate, "the holder is at the gate")
        for contender in self._contenders:
            if contender.wait(LONGEST_WAIT) != 0:
                raise RuntimeError(f"{contender.args!r} ended with {contender.returncode}")
        found = turns(self._stamps.read_text())
        if len(found) != len(self._contenders):
            raise RuntimeError(f"{len(self._contenders)} contenders had {len(found)} turns")
        return found

    def _open_gate(self) -> bool:
        try:
            os.close(os.open(self._gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:  # ENXIO: nobody stands behind it yet
            return False
        return True


@contextmanager
def contest(peer: Peer, child: Child, count: int, folder: Path, environment: Mapping[str, str]) -> Iterator[Contest]:
    """With so many waiters, every one of them in the queue. Whatever still lives in the end is killed."""
    name = f"contest-{os.urandom(6).hex()}"
    stamps, gate = folder / f"{name}.stamps", folder / f"{name}.gate"
    os.mkfifo(gate)
    stamps.touch()
    contenders: list[subprocess.Popen[bytes]] = []

    def start(gate: Path | None) -> int:
        command = [*peer.command(name), *child.words(stamps, gate)]
        contenders.append(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # etcdctl prints its key when it has no child, and nothing of use otherwise
                env=environment,
                start_new_session=True,
            )
        )
        return contenders[-1].pid

    def nobody_has_ended() -> bool:
        for contender in contenders:
            if contender.poll() is not None:
                raise RuntimeError(f"{contender.args!r} ended with {contender.returncode} instead of waiting")
        return True

    try:
        start(gate)
        wait_until(lambda: nobody_has_ended() and "S" in stamps.read_text(), f"{peer.name} holds its lock")
        waiters = [start(None) for _ in range(count)]
        wait_until(lambda: nobody_has_ended() and peer.waiters(name) == count, f"{count} of {peer.name} in the queue")
        yield Contest(waiters, gate, stamps, contenders)
    finally:
        for contender in contenders:
            end(contender)
