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
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing them, until q or Ctrl-C.")] = False,
    interval: Annotated[
        str | None, typer.Option("--interval", metavar="D", help="Of --watch: how often to look. Default: 2s.")
    ] = None,
    config: ConfigOption = None,
) -> int | None:
    """Show the locks that are held, or match PATTERN.

    States: held; expiring, when the holder is late with its renewal; kept, when the lock outlives its run; free, with
    --all. With --watch a terminal shows them as they are now; in a pipe one table follows the other, with --json one
    document a line.
    """
    from .watch import interval_of, watch_locks

    seconds = interval_of(interval, watch)
    if watch:
        return watch_locks(
            lambda: opened(backend, config), lambda states: select(states, patterns or [], everything), seconds, as_json
        )
    from .render import print_json, print_locks

    with opened(backend, config) as (engine, chosen):
        states = select(engine.locks(TIMEOUT), patterns or [], everything)
    if as_json:
        print_json({"version": VERSION, "backend": chosen.shown, "locks": [lock_view(state) for state in states]})
    else:
        print_locks(states)
    return None
