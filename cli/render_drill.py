"""The drill's timeline: lines for people, JSON for programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from distlock.drill import SOON
from distlock.durations import format_duration
from distlock.lock_view import VERSION, Plain

from .render import print_json

if TYPE_CHECKING:
    from distlock.drill import Outcome

_COLOURS = {"first": "yellow", "second": "green", "backend": "cyan", "operator": "dim"}
_NO_TOKENS = "gives no fencing tokens: a late write cannot be refused there, so there is nothing to prove"


def print_no_tokens(backend: str, as_json: bool) -> None:
    if as_json:
        print_json({"version": VERSION, "backend": backend, "proven": False, "reason": _NO_TOKENS, "events": []})
    else:
        print(f"{backend} {_NO_TOKENS}")


def print_drill(outcome: Outcome, backend: str, ttl: float, as_json: bool) -> None:
    if as_json:
        events: list[Plain] = [
            {"at_seconds": round(event.at, 4), "who": event.who, "what": event.what} for event in outcome.events
        ]
        print_json(
            {
                "version": VERSION,
                "backend": backend,
                "ttl_seconds": ttl,
                "proven": outcome.proven,
                "late_writes_refused": outcome.refused,
                "late_writes_accepted": outcome.accepted_late,
                "late_job_dead_after_seconds": None if outcome.died_after is None else round(outcome.died_after, 4),
                "first_exit_code": outcome.code,
                "events": events,
            }
        )
        return
    console = Console(highlight=False) if sys.stdout.isatty() else None
    for event in outcome.events:
        line = f"{event.at:9.3f} s  {event.who:<8}  {event.what}"
        if console:
            console.print(Text(line, style=_COLOURS[event.who]))
        else:
            print(line)
    for good, claim in (
        (
            outcome.fenced,
            f"late writes refused by the fence: {outcome.refused} of {outcome.refused + outcome.accepted_late}",
        ),
        (outcome.stopped, f"the late job dead within {format_duration(SOON)} of the thaw, and its run said so (76)"),
    ):
        word = "proven" if good else "NOT PROVEN"
        if console:
            console.print(Text(f"{word}: {claim}", style="bold green" if good else "bold red"))
        else:
            print(f"{word}: {claim}")
