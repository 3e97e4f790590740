"""``distlock history``: the runs of this host."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from distlock.durations import duration_of
from distlock.history_view import VERSION, findings, run_view
from distlock.lock_view import Plain
from distlock.names import parse_name

from .opening import journal_of_this_user


def history(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Of this lock alone.", show_default=False)
    ] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="D", help="That ended in the last D.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: keys and units are stable.")] = False,
) -> None:
    """Show the runs of this user on this host: waits, holds, renewals, outcomes; on a terminal also as a timeline.

    Points out locks whose lease is about to lie: holds that come near the TTL, renewals that came near the margin.
    """
    after = 0.0 if since is None else time.time() - duration_of("--since", since)
    runs = journal_of_this_user().runs(None if name is None else parse_name(name), after)
    found = findings(runs)
    if as_json:
        from .render import print_json

        warnings: list[Plain] = [{"name": one.name, "backend": one.backend, "text": one.text} for one in found]
        print_json({"version": VERSION, "runs": [run_view(run) for run in runs], "warnings": warnings})
    else:
        from .render_history import print_history

        print_history(runs, found)
