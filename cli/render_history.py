"""Runs as a table, and on a terminal a timeline of waits and holds a lock."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distlock.durations import format_duration
from distlock.lock_view import utc
from distlock.notices import say

from .render import print_table, shown

if TYPE_CHECKING:
    from distlock.history_view import Finding

_COLOURS = {"succeeded": "green", "failed": "yellow", "unlocked": "magenta", "lost": "bold red", "killed": "red"}
_WAIT, _HOLD, _NOTHING = "░", "█", "·"
_NARROWEST = 20
_WIDE = 120
_TEXTS = 3


def print_history(runs: Sequence[sqlite3.Row], found: Sequence[Finding]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    wide = not sys.stdout.isatty() or Console().width >= _WIDE
    columns: list[tuple[str, Callable[[sqlite3.Row], Text | str]]] = [
        ("ENDED", lambda run: utc(run["ended_at"])),
        ("NAME", lambda run: shown(run["name"])),
        ("OUTCOME", lambda run: Text(run["outcome"], style=_COLOURS.get(run["outcome"], ""))),
        ("CODE", lambda run: _number(run["exit_code"])),
        ("WAIT", lambda run: _length(run["waited"])),
        ("HELD", lambda run: _length(run["held"])),
        ("RENEWALS", lambda run: _number(run["renewals"] or None)),
    ]
    if wide:
        columns += [
            ("FAILED", lambda run: _number(run["failures"] or None)),
            ("SLOWEST", lambda run: _length(run["longest"])),
            ("TTL", lambda run: _length(run["ttl"])),
            ("TOKEN", lambda run: _number(run["token"])),
        ]
    for number, (title, _) in enumerate(columns):
        table.add_column(title, justify="left" if number < _TEXTS else "right", no_wrap=title != "NAME")
    for run in runs:
        table.add_row(*(value(run) for _, value in columns))
    print_table(table)
    if sys.stdout.isatty() and runs:
        _print_timeline(runs)
    for one in found:
        say(f"{one.name} ({one.backend}): {one.text}")


def _length(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(round(seconds, 3))


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _print_timeline(runs: Sequence[sqlite3.Row]) -> None:
    console = Console(highlight=False)
    first, last = min(run["asked_at"] for run in runs), max(run["ended_at"] for run in runs)
    names = sorted({run["name"] for run in runs})
    room = max(len(name) for name in names)
    room = min(room, max(8, console.width // 3))
    width = max(_NARROWEST, console.width - room - 2)
    console.print()
    for name in names:
        title = shown(name)
        title.truncate(room, overflow="ellipsis", pad=True)
        console.print(title, Text(timeline([run for run in runs if run["name"] == name], first, last, width)), sep="  ")
    legend = f"{utc(first)} to {utc(last)}   {_WAIT} waiting   {_HOLD} held"
    console.print(Text(" " * (room + 2) + legend, style="dim"))


def timeline(runs: Sequence[sqlite3.Row], first: float, last: float, width: int) -> str:
    """One character for each part of the time between: a hold counts more than a wait, and either more than nothing."""
    cells = [_NOTHING] * width
    scale = width / (last - first) if last > first else 0.0

    def draw(begin: float, end: float, mark: str) -> None:
        start = min(width - 1, max(0, int((begin - first) * scale)))
        for place in range(start, min(width - 1, max(start, int((end - first) * scale))) + 1):
            if cells[place] != _HOLD:
                cells[place] = mark

    for run in runs:
        if run["granted_at"] is not None and run["held"] is not None:
            draw(run["granted_at"], run["granted_at"] + run["held"], _HOLD)
            draw(run["granted_at"] - run["waited"], run["granted_at"], _WAIT)
        else:
            draw(run["ended_at"] - run["waited"], run["ended_at"], _WAIT)
    return "".join(cells)
