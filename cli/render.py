"""Tables and JSON on stdout: the only user of rich, imported by the commands that print."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from distlock.durations import format_duration
from distlock.holders import each_holder
from distlock.lock_view import state_of, utc
from distlock.quoting import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from distlock.backends.base import Client, LockState
    from distlock.lock_view import Plain

_COLOURS = {"held": "green", "expiring": "bold red", "kept": "yellow", "free": "dim"}
_OF_A_HOLDER = ("HOLDER", "USER", "COMMAND", "LABEL", "SINCE", "HELD", "LEFT", "TOKEN", "WAITERS")
_NUMBERS = frozenset({"INDEX", "HELD", "LEFT", "TOKEN", "WAITERS"})
_WIDER_THAN_ANY_LINE = 10_000


def print_table(table: Table) -> None:
    """In a pipe no line is folded, coloured or padded: each lock stays one line for grep and awk."""
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    console = Console(highlight=False, color_system=None, width=_WIDER_THAN_ANY_LINE)
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        print(line.rstrip())


def print_json(data: Mapping[str, Plain]) -> None:
    json.dump(data, sys.stdout, ensure_ascii=sys.stdout.encoding.lower() != "utf-8", indent=2)
    print()


def shown(text: str) -> Text:
    """Names and labels of others may hold anything; nothing of it is markup or reaches the terminal as a control."""
    return Text(printable(text))


def _left(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(max(0.0, round(seconds, 1)))


def _state(state: LockState) -> Text:
    word = state_of(state)
    return Text(word, style=_COLOURS[word])


def print_locks(states: Sequence[LockState]) -> None:
    print_table(locks_table(states))


def locks_table(states: Sequence[LockState], without: Collection[str] = ()) -> Table:
    """``without``: titles of columns that there is no room for."""
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    several = any(state.max_holders > 1 for state in states)
    titles = ("NAME", "STATE", *(("INDEX", "PLACES") if several else ()), *_OF_A_HOLDER)
    for title in titles:
        if title not in without:
            table.add_column(title, justify="right" if title in _NUMBERS else "left", no_wrap=title == "PLACES")
    for state in states:
        holders = each_holder(state)
        for index, one in holders or [(0, state)]:
            of_all = (str(index), f"{len(holders)} of {state.max_holders}") if state.max_holders > 1 else ("", "")
            cells = (
                shown(one.name),
                _state(one),
                *(of_all if several else ()),
                *_holder(one),
                _left(one.expires_in),
                "" if one.token is None else str(one.token),
                str(len(one.waiters)) if one.waiters else "",
            )
            table.add_row(*(cell for title, cell in zip(titles, cells, strict=True) if title not in without))
    return table


def print_backends(rows: Sequence[Plain]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title in ("URL", "CLASS", "ORDER", "EXCLUSIVE UNTIL", "TOKEN GROWS OVER"):
        table.add_column(title, no_wrap=title in ("URL", "CLASS"))
    for row in rows:
        assert isinstance(row, dict)
        if row["problem"]:
            table.add_row(f"{row['scheme']}:", Text("broken", style="bold red"), "", shown(str(row["problem"])), "")
            continue
        order = "first come, first served" if row["fifo"] else "any"
        table.add_row(
            f"{row['scheme']}:", str(row["class"]), order, str(row["exclusive_until"]), str(row["token_scope"])
        )
    print_table(table)


def _holder(state: LockState) -> tuple[Text, Text, Text, Text, str, str]:
    holder = state.holder
    if holder is None:
        nobody = Text("")
        return (Text("unknown") if state.held else nobody, nobody, nobody, nobody, "", "")
    return (
        shown(f"{holder.host}:{holder.pid}"),
        shown(holder.user),
        shown(holder.command),
        shown(holder.label or ""),
        utc(holder.since),
        _left(time.time() - holder.since),
    )


def print_lock(state: LockState, places: Sequence[str]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("name", shown(state.name))
    if state.max_holders > 1:
        holders = each_holder(state)
        table.add_row("holders", f"{len(holders)} of {state.max_holders}")
        for index, one in holders:
            table.add_row("index", str(index))
            table.add_row("  state", _state(one))
            _add_holder(table, one, "  ")
    else:
        table.add_row("state", _state(state))
        _add_holder(table, state)
    if state.last_success:
        table.add_row("last success", f"{utc(state.last_success.at)}, {_left(state.last_success.age)} ago")
    for number, waiter in enumerate(state.waiters, 1):
        table.add_row(f"waiter {number}", _client(waiter))
    for place in places:
        table.add_row("kept in", shown(place))
    print_table(table)


def _add_holder(table: Table, state: LockState, indent: str = "") -> None:
    if state.token is not None:
        table.add_row(f"{indent}token", str(state.token))
    if state.holder:
        table.add_row(f"{indent}holder", _client(state.holder))
        table.add_row(f"{indent}owner id", shown(state.holder.owner))
        table.add_row(f"{indent}held for", _left(time.time() - state.holder.since))
    elif state.held:
        table.add_row(f"{indent}holder", "unknown: not a distlock")
    if state.ttl is not None:
        table.add_row(f"{indent}lease", f"{format_duration(state.ttl)}, {_left(state.expires_in)} left")


def _client(client: Client) -> Text:
    label = f" {client.label!r}" if client.label else ""
    return shown(f"{client.host}:{client.pid} ({client.user}) {client.command}{label} since {utc(client.since)}")
