"""An interactive shell at a terminal, for what only a person's keys bring about."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from distlock.supervise import tree
from processes import wait_until


class Terminal:
    """A command with a terminal of its own as stdin, stdout and stderr, killed when the context is left."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str], size: tuple[int, int] | None = None
    ) -> None:
        """``size``: lines and columns; without it the terminal knows none."""
        self._master, slave = pty.openpty()
        try:
            if size:
                self.resize(*size)
            self._process = subprocess.Popen(
                # A shell edits lines, and is signalled by keys, only at a terminal that is its controlling one.
                ["setsid", "--ctty", *command],
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env={"TERM": "dumb", **environment},
            )
        except BaseException:
            os.close(self._master)
            raise
        finally:
            os.close(slave)
        self._seen = ""
        self.pid = self._process.pid
        self._hung_up = False

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def read_until(self, text: str, timeout: float = 20.0) -> str:
        """All output up to and including ``text`` that was not returned before."""
        end = time.monotonic() + timeout
        while text not in self._seen:
            if not select.select([self._master], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"no {text!r} within {timeout} s; there is {self._seen!r}")
            try:
                self._seen += os.read(self._master, 4096).decode(errors="replace")
            except OSError:  # the last process at the terminal is gone
                raise EOFError(f"ended without {text!r}; there is {self._seen!r}") from None
        before, found, self._seen = self._seen.partition(text)
        return before + found

    def settings(self) -> list[Any]:
        """Of the line: echo, and what keys do."""
        return termios.tcgetattr(self._master)

    def resize(self, lines: int, columns: int) -> None:
        """As a window does; who is in the foreground gets SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read_on(self) -> str:
        """All that was not returned before and comes until its end."""
        with contextlib.suppress(EOFError):
            self.read_until("\0never")
        seen, self._seen = self._seen, ""
        return seen

    def wait(self, timeout: float = 20.0) -> int:
        """For its end; its exit code."""
        return self._process.wait(timeout)

    def hang_up(self) -> None:
        """Close the terminal, as an emulator does whose window is closed."""
        self._hung_up = True
        os.close(self._master)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self._hung_up:
            os.close(self._master)
        self._process.kill()
        self._process.wait()


class Shell(Terminal):
    """An interactive bash without start-up files whose prompt shows ``$?``. What it started and still lives is killed
    when the context is left, also when it stopped or runs in the background."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__(["bash", "--norc", "--noprofile", "-i"], {**environment, "PS1": "[$?]> "})

    def __enter__(self) -> Self:
        self.prompt()
        return self

    def prompt(self) -> int:
        """Wait for the prompt; the exit code in it."""
        return self.transcript()[1]

    def transcript(self) -> tuple[str, int]:
        """All up to the next prompt that was not returned before, and the exit code in the prompt."""
        before, _, code = self.read_until("]> ").removesuffix("]> ").rpartition("[")
        return before, int(code)

    def command(self, line: str) -> tuple[str, int]:
        """Type a line; what it printed, and its exit code. No echo of the line."""
        self.press(f"{line}\n")
        output, code = self.transcript()
        return output.removeprefix(line).lstrip(), code

    def job(self) -> int:
        """The pid of the one command that it has started."""
        return wait_until(lambda: tree.children(self.pid), what="a job of the shell")[0]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        left = tree.descendants(self.pid, frozenset())
        if not self._hung_up:
            os.close(self._master)
        self._process.kill()
        self._process.wait()
        tree.send(left, signal.SIGKILL)
