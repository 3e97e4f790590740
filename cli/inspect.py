"""``distlock inspect``: all of one lock."""

from __future__ import annotations

from typing import Annotated

import typer

from distlock.durations import duration_of
from distlock.lock_view import VERSION, lock_view
from distlock.names import parse_name

from .opening import TIMEOUT, BackendOption, opened
from .settings import ConfigOption


def inspect(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    backend: BackendOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: keys and units are stable.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing; end with 0: held, 1: free.")] = False,
    succeeded_within: Annotated[
        str | None,
        typer.Option(
            "--succeeded-within",
            metavar="D",
            help="End with 0 if the last run that succeeded, on any host, started no longer than D ago; else with 1.",
        ),
    ] = None,
    config: ConfigOption = None,
) -> int:
    """Show one lock: holder, token, lease, waiters in order, last success, and where the backend keeps it."""
    lock = parse_name(name)
    within = None if succeeded_within is None else duration_of("--succeeded-within", succeeded_within)
    with opened(backend, config, lock) as (engine, _):
        state = engine.inspect(lock, TIMEOUT)
        places = engine.places(lock)
    if not quiet:
        from .render import print_json, print_lock

        if as_json:
            print_json({"version": VERSION, **lock_view(state), "keys": list(places)})
        else:
            print_lock(state, places)
    if within is not None:
        return 0 if state.last_success and abs(state.last_success.age) <= within else 1  # one far ahead is no news
    return 1 if quiet and not state.held else 0
