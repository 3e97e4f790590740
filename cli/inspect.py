"""``distlock inspect``: all of one lock."""

from __future__ import annotations

from typing import Annotated

import typer

from distlock.lock_view import VERSION, lock_view
from distlock.names import parse_name

from .opening import TIMEOUT, BackendOption, opened
from .settings import ConfigOption


def inspect(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    backend: BackendOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: keys and units are stable.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing; end with 0: held, 1: free.")] = False,
    config: ConfigOption = None,
) -> int:
    """Show one lock: holder, token, lease, waiters in order, and where the backend keeps it."""
    from .render import print_json, print_lock

    lock = parse_name(name)
    with opened(backend, config, lock) as (engine, _):
        state = engine.inspect(lock, TIMEOUT)
        places = engine.places(lock)
    if quiet:
        return 0 if state.held else 1
    if as_json:
        print_json({"version": VERSION, **lock_view(state), "keys": list(places)})
    else:
        print_lock(state, places)
    return 0
