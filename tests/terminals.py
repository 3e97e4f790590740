"""An interactive shell at a terminal, for what only a person's keys bring about."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class Terminal:
    """A command with a terminal of its own as stdin, stdout and stderr, killed when the context is left."""

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        try:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._master)
        self._process.kill()
        self._process.wait()
