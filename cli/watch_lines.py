"""A watch in a pipe or a file: tables one after another, each under a line with its time, or JSON line by line."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

from distlock.durations import format_duration
from distlock.lock_view import VERSION, lock_view, utc
from distlock.notices import say

if TYPE_CHECKING:
    from typing import Self

    from .watch import Look


class Lines:
    keyboard: int | None = None

    def __init__(self, as_json: bool, interval: float) -> None:
        self._as_json = as_json
        self._again = f"trying again every {format_duration(interval)}"
        self._problem = ""

    def show(self, look: Look) -> None:
        """A problem goes to stderr, once; so does its end."""
        from .render import print_locks

        if look.problem:
            if not self._problem:
                say(f"{look.problem}; {self._again}")
            self._problem = look.problem
            return
        if self._problem:
            say("the backend answers again")
            self._problem = ""
        if self._as_json:
            locks = [lock_view(state) for state in look.states]
            data = {"version": VERSION, "at": utc(look.at), "backend": look.backend, "locks": locks}
            print(json.dumps(data, ensure_ascii=sys.stdout.encoding.lower() != "utf-8"))
        else:
            print(f"{utc(look.at)}  {look.backend}")
            print_locks(look.states)
            print()
        sys.stdout.flush()

    def resize(self) -> None:
        pass

    def suspend(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
