"""``distlock doctor``: whether the backend, this host and the configuration are fit for locks, and for which TTL."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from distlock.backend_choice import choose
from distlock.doctor.report import examine, report_view
from distlock.durations import duration_of

from .ending import end_tidily
from .opening import BackendOption
from .settings import ConfigOption, configuration


def doctor(
    recovery: Annotated[
        str | None,
        typer.Option("--recovery", metavar="D", help="How long the lock of a host that died may stay unavailable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: keys and units are stable.")] = False,
    backend: BackendOption = None,
    config: ConfigOption = None,
) -> int:
    """Look for what breaks locks: in the backend's settings, on this host, in the configuration.

    Measures round trips (on a lock of its own, which it gives back) and pauses, proposes a TTL from them and says why.
    Each finding comes with what it means, what was found, and what to do. Ends with 1 if there are warnings. Takes some
    seconds.
    """
    wish = None if recovery is None else duration_of("--recovery", recovery)
    found = configuration(config)
    chosen = choose(backend, found)
    end_tidily()
    report = examine(found, chosen, wish)
    if as_json:
        from .render import print_json

        print_json(report_view(report))
    else:
        from .render_doctor import print_report

        print_report(report)
    if report.failure is not None:
        sys.stdout.flush()
        raise report.failure
    return 1 if report.verdict == "warnings" else 0
