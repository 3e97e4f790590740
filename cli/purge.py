"""``distlock purge``: an operator has the backend forget locks that nobody uses any more."""

from __future__ import annotations

import fnmatch
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from distlock.backends.base import DistlockError
from distlock.clock import boottime
from distlock.durations import duration_of, format_duration
from distlock.errors import UsageError
from distlock.leasefile import LeaseFile
from distlock.lock_view import VERSION, Plain
from distlock.notices import say
from distlock.quoting import printable
from distlock.state import state_directory

from .opening import TIMEOUT, BackendOption, opened
from .settings import ConfigOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from distlock.backends.base import Backend


def purge(
    patterns: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATTERN]...", help="Names as of the shell: nightly-*.", show_default=False),
    ] = None,
    unused_for: Annotated[
        str, typer.Option("--unused-for", metavar="D", help="Only what was last granted or given back D ago, or more.")
    ] = "30d",
    fences: Annotated[
        bool, typer.Option("--fences", help="Fence registers instead: stale tokens pass then. Needs PATTERN.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: keys and units are stable.")] = False,
    backend: BackendOption = None,
    config: ConfigOption = None,
) -> None:
    """Forget locks that nobody uses any more; prints their names.

    Those that nobody holds or waits for, that match PATTERN (all, if there is none), unused for 30 days. What is yet
    to be remembered of a lock, its last success (400 days) or a --once KEY, keeps it. Tokens granted later are greater
    than those forgotten. Without PATTERN, lease files that killed runs of this user left on this host go as well.
    """
    age = duration_of("--unused-for", unused_for)
    if fences and not patterns:
        raise UsageError("--fences needs PATTERN ('*' for all): a resource without its register lets stale tokens pass")
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("purge needs --yes where nobody can be asked")
    wanted = _wanted(patterns or [])
    with opened(backend, config) as (engine, chosen):
        if not yes:
            _ask(engine, chosen.shown, wanted, age, fences)
        purged: list[Plain] = []
        files = 0
        try:
            for name in engine.purge(wanted, age, TIMEOUT, fences=fences):
                purged.append(name)
                if not as_json:
                    print(printable(name))
            if not patterns:
                files = _remove_lease_files()
        finally:
            if as_json:  # also when the backend went away in between: what is gone is gone
                _print_json(chosen.shown, age, fences, purged, files)
        if not as_json and sys.stderr.isatty():
            left = f", and {files} lease files that killed runs left" if files else ""
            say(f"{len(purged)} {'fence registers' if fences else 'locks'} forgotten{left}")


def _wanted(patterns: list[str]) -> Callable[[str], bool]:
    """A pattern is as of the shell, and case counts."""
    return lambda name: not patterns or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _ask(engine: Backend, shown: str, wanted: Callable[[str], bool], age: float, fences: bool) -> None:
    """With how many it is about. When they were last used the backend tells nobody: these are the most it can be."""
    unused = f"unused for {format_duration(age)}"
    if fences:
        question = f"{shown}: forget all fence registers that match and are {unused}, and let stale tokens pass"
    else:
        found = [state for state in engine.locks(TIMEOUT) if wanted(state.name)]
        free = [state for state in found if not (state.held or state.waiters or state.last_success)]
        question = f"{shown}: {len(found)} locks match, {len(free)} may go: forget those of them that are {unused}"
    if not typer.confirm(f"{question}?", err=True):
        raise UsageError("nothing was done")


def _remove_lease_files() -> int:
    try:
        state = state_directory()
        return LeaseFile(state, "purge", "").remove_stale(boottime()) if (state / "leases").is_dir() else 0
    except (OSError, DistlockError):
        return 0  # each run of this user tries it anew


def _print_json(shown: str, age: float, fences: bool, purged: list[Plain], files: int) -> None:
    from .render import print_json

    print_json(
        {
            "version": VERSION,
            "backend": shown,
            "unused_for_seconds": age,
            "fences": fences,
            "purged": purged,
            "lease_files_removed": files,
        }
    )
