"""``distlock status``: which locks are held, by whom, since when."""

from __future__ import annotations

from typing import Annotated

import typer

from distlock.lock_view import VERSION, lock_view, select

from .opening import TIMEOUT, BackendOption, opened
from .settings import ConfigOption


def status(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATTERN]...", help="Names as of the shell: nightly-*.", show_default=False),
    ] = None,
    backend: BackendOption = None,
    everything: Annotated[bool, typer.Option("-a", "--all", help="Free locks that are on record too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: keys and units are stable.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show the locks that are held, or match PATTERN.

    States: held; expiring, when the holder is late with its renewal; kept, when the lock outlives its run; free, with
    --all.
    """
    from .render import print_json, print_locks

    with opened(backend, config) as (engine, chosen):
        states = select(engine.locks(TIMEOUT), patterns or [], everything)
    if as_json:
        print_json({"version": VERSION, "backend": chosen.shown, "locks": [lock_view(state) for state in states]})
    else:
        print_locks(states)
