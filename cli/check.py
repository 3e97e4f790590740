"""``distlock check``: inside a job, before each side effect."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from distlock.backend_url import masked
from distlock.backends.base import LeaseLost
from distlock.checking import OwnLease
from distlock.errors import UsageError
from distlock.quoting import quoted
from distlock.session import describe

from .opening import TIMEOUT, BackendOption, opened
from .quick_check import check_file


def check(
    need: Annotated[
        str | None,
        typer.Option("--need", metavar="D", help="Lease that must be left. Default: until the stop signal is due."),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Ask the backend as well: a round trip.")] = False,
    backend: BackendOption = None,
) -> int:
    """Tell a job whether it still holds its lock: 0, or 76 with the reason.

    For use inside of distlock run, before each side effect. Without --verify only the lease file is read, and no
    backend is asked.
    """
    lease = check_file(need)
    if verify:
        _ask(lease, _backend_of(lease, backend))
        check_file(need)  # the answer may have taken long
    return 0


def _backend_of(lease: OwnLease, option: str | None) -> str:
    """The file has no secrets in it."""
    if option is not None:
        return option
    inherited = os.environ.get("DISTLOCK_BACKEND")
    if inherited and masked(inherited) == lease.backend:
        return inherited
    if "***" in lease.backend:
        raise UsageError(
            f"--verify: the lease file does not hold the secret of {lease.backend}; name the backend with -b"
        )
    return lease.backend


def _ask(lease: OwnLease, backend: str) -> None:
    with opened(backend) as (engine, _):
        state = engine.inspect(lease.name, TIMEOUT)
    if not state.held or state.holder is None or state.holder.owner != lease.owner:
        raise LeaseLost(f"{quoted(lease.name)}: the lease is lost: {describe(state)}")
