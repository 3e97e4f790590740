"""A watch on a terminal: a screen of its own, as `top` has one, that leaves the terminal as it was."""

from __future__ import annotations

import os
import signal
import sys
import termios
import tty
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.measure import Measurement
from rich.text import Text

from distlock.durations import format_duration
from distlock.lock_view import state_of, utc
from distlock.quoting import printable

from .render import locks_table
from .watch import Look

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

    from rich.console import ConsoleOptions, RenderResult
    from rich.table import Table

    from distlock.backends.base import LockState

_GIVEN_UP_FIRST = ("SINCE", "USER", "COMMAND", "HELD", "TOKEN", "LABEL", "INDEX", "WAITERS", "HOLDER")
"""Columns that a narrow terminal does without, in this order: name, state and what is left of the lease stay."""
_STATES = ("held", "expiring", "kept", "free")
_WIDER_THAN_ANY = 10_000
_AROUND = 5
"""Lines that are not locks: the title, two empty ones, the table's head, the foot."""


def can_show() -> bool:
    """A dumb terminal has no screen to go to."""
    console = Console()
    return console.is_terminal and not console.is_dumb_terminal


class Screen:
    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._look: Look | None = None
        self._console = Console(highlight=False)
        self.keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._settings: list[Any] | None = None

    def show(self, look: Look) -> None:
        self._look = look
        self.resize()

    def resize(self) -> None:
        """Drawn over what is there, without clearing it first: that would flicker."""
        self._live.update(self._picture(), refresh=True)

    def _picture(self) -> Picture:
        key = "Ctrl-C" if self.keyboard is None else "q"
        return Picture(self._look, f"every {format_duration(self._interval)}; {key} ends")

    def suspend(self) -> None:
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def _enter(self) -> None:
        if self.keyboard is not None:
            self._settings = termios.tcgetattr(self.keyboard)
            tty.setcbreak(self.keyboard)
        self._live = Live(
            self._picture(),
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._live.start(refresh=True)

    def _leave(self) -> None:
        try:
            self._live.stop()
            if self.keyboard is not None and self._settings is not None:
                # What was typed for us and not read is nothing for the shell.
                termios.tcsetattr(self.keyboard, termios.TCSAFLUSH, self._settings)
        except (OSError, termios.error):
            pass  # hung up: there is no terminal any more


class Picture:
    """One look, as large as there is room for."""

    def __init__(self, look: Look | None, foot: str) -> None:
        self._look = look
        self._foot = foot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        look = self._look
        foot = _line(self._foot, "dim")
        if look is None or not look.backend:
            yield Group(_problem(look) if look and look.problem else _line("asking the backend", "dim"), Text(), foot)
            return
        room = max(1, options.size.height - _AROUND - bool(look.problem))
        states, left_out = _fitting(look.states, room)
        table = fitting_table(console, options, states)
        parts = [_title(look), *([_problem(look)] if look.problem else []), Text()]
        parts += [_line("no lock is held", "")] if not states else []
        if states:
            yield Group(*parts, table)
            parts = []
        more = [_line(f"{left_out} more", "dim")] if left_out else [Text()]
        yield Group(*parts, *more, foot)


def _line(text: str, style: str) -> Text:
    return Text(printable(text), style=style, no_wrap=True, overflow="ellipsis")


def _title(look: Look) -> Text:
    counts = [(word, sum(state_of(state) == word for state in look.states)) for word in _STATES]
    waiting = sum(len(state.waiters) for state in look.states)
    title = _line("", "")
    for word, count in [*counts, ("waiting", waiting)]:
        if count:
            title.append(f"{count} {word}", style="bold red reverse" if word == "expiring" else "bold")
            title.append("  ")
    return title.append(printable(f"{utc(look.at)}  {look.backend}"))


def _problem(look: Look) -> Text:
    since = f"; what follows is of {utc(look.at)}" if look.backend else ""
    return _line(f"{look.problem}{since}", "bold red")


def _fitting(states: Sequence[LockState], room: int) -> tuple[list[LockState], int]:
    """Those that there is room for, and how many are left out: never one that expires for one that does not."""
    rows = [max(1, len(state.holdings)) for state in states]
    if sum(rows) <= room:
        return list(states), 0
    by_weight = sorted(range(len(states)), key=lambda number: state_of(states[number]) != "expiring")
    taken: set[int] = set()
    for number in by_weight:
        if rows[number] <= room:
            taken.add(number)
            room -= rows[number]
    return [state for number, state in enumerate(states) if number in taken], len(states) - len(taken)


def fitting_table(console: Console, options: ConsoleOptions, states: Sequence[LockState]) -> Table:
    """Without the columns that there is no room for; a lock is one line."""
    many = 0
    while True:
        table = locks_table(states, _GIVEN_UP_FIRST[:many])
        for column in table.columns:
            column.no_wrap, column.overflow = True, "ellipsis"
        wanted = Measurement.get(console, options.update(width=_WIDER_THAN_ANY), table).maximum
        if wanted <= options.max_width or many == len(_GIVEN_UP_FIRST):
            break
        many += 1
    _mark_expiring(table, states)
    return table


def _mark_expiring(table: Table, states: Sequence[LockState]) -> None:
    """By more than a colour, which not every terminal has."""
    from distlock.holders import each_holder

    each = [one for state in states for one in [held for _, held in each_holder(state)] or [state]]
    for row, one in zip(table.rows, each, strict=True):
        if state_of(one) == "expiring":
            row.style = "bold red reverse"
