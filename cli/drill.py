"""``distlock drill``: shows on the configured backend that a holder frozen past its lease does no harm."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from distlock.backend_choice import choose
from distlock.backends import open_backend
from distlock.backends.base import Environment
from distlock.clock import boottime
from distlock.deadline import SHORTEST_TTL
from distlock.drill import HolderEnded
from distlock.drill import drill as run_drill
from distlock.durations import format_duration, parse_duration
from distlock.errors import UsageError
from distlock.quoting import quoted
from distlock.state import state_directory

from .ending import end_tidily
from .exits import error_of
from .opening import TIMEOUT, BackendOption
from .settings import ConfigOption, configuration

LONGEST_TTL = 300.0


def drill(
    ttl: Annotated[str, typer.Option("--ttl", metavar="D", help="Lease of the two holders.")] = "5s",
    as_json: Annotated[bool, typer.Option("--json", help="For programs: keys and units are stable.")] = False,
    backend: BackendOption = None,
    config: ConfigOption = None,
) -> int:
    """Freeze a holder past its lease, let a second one take over, thaw the first: a timeline of what happened.

    Ends with 0 only if the late job was dead in time and the fence refused its late writes, else with 1. Real processes
    and a real lock, of a name of its own, on the backend as it is configured; the fenced resource is a file for the
    occasion.
    """
    from .render_drill import print_drill, print_no_tokens

    lease = _ttl(ttl)
    chosen = choose(backend, configuration(config), None)
    engine = open_backend(chosen.url, Environment(boottime, state_directory, chosen.password))
    try:
        has_tokens = bool(engine.token_scope)
        if has_tokens:
            engine.inspect("distlock drill", TIMEOUT)  # or the error that it is
    finally:
        engine.close()
    if not has_tokens:
        print_no_tokens(chosen.shown, as_json)
        return 1
    end_tidily()  # a drill that is interrupted takes its holders with it, one of which may be frozen
    # By the environment: in a process list everybody would see what the URL holds.
    environment = {**os.environ, "DISTLOCK_BACKEND": chosen.url, "DISTLOCK_PASSWORD": chosen.password or ""}
    try:
        outcome = run_drill(lease, environment)
    except HolderEnded as ended:
        raise error_of(ended.code)(str(ended)) from None
    print_drill(outcome, chosen.shown, lease, as_json)
    return 0 if outcome.proven else 1


def _ttl(text: str) -> float:
    try:
        ttl = parse_duration(text)
    except UsageError as error:
        raise UsageError(f"--ttl: {error}") from None
    if not SHORTEST_TTL <= ttl <= LONGEST_TTL:
        shortest, longest = format_duration(SHORTEST_TTL), format_duration(LONGEST_TTL)
        raise UsageError(f"--ttl {quoted(text)}: from {shortest} to {longest}; the drill waits for its end")
    return ttl
