"""``distlock status``: which locks are held, by whom, since when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from distlock.backends.base import DistlockError
from distlock.lock_view import VERSION, lock_view, select

from .opening import TIMEOUT, BackendOption, opened
from .settings import ConfigOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.backends.base import LockState


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
    if watch or interval is not None:
        from .watch import interval_of, watch_locks

        seconds = interval_of(interval, watch)
        return watch_locks(
            lambda: opened(backend, config), lambda states: select(states, patterns or [], everything), seconds, as_json
        )
    from .render import print_json, print_locks

    with opened(backend, config) as (engine, chosen):
        found, problem = _readable(engine.locks(TIMEOUT))
    states = select(found, patterns or [], everything)
    if as_json:
        print_json({"version": VERSION, "backend": chosen.shown, "locks": [lock_view(state) for state in states]})
    else:
        print_locks(states)
    if problem is not None:
        raise problem
    return None


def _readable(locks: Iterator[LockState]) -> tuple[list[LockState], DistlockError | None]:
    """A record that cannot be read does not hide the others: engines give these first. Raises what it is if there are
    none."""
    found: list[LockState] = []
    try:
        for state in locks:
            found.append(state)  # noqa: PERF402 - those before an error count
    except DistlockError as error:
        if not found:
            raise
        return found, error
    return found, None
