"""``distlock check``: inside a job, before each side effect."""

from __future__ import annotations

from typing import Annotated

import typer

from distlock.backend_choice import choose
from distlock.backends.base import LeaseLost
from distlock.checking import OwnLease
from distlock.errors import UsageError
from distlock.holders import describe, each_holder
from distlock.quoting import quoted

from .opening import TIMEOUT, BackendOption, opened
from .quick_check import check_file
from .settings import ConfigOption, configuration


def check(
    need: Annotated[
        str | None,
        typer.Option("--need", metavar="D", help="Lease that must be left. Default: until the stop signal is due."),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Ask the backend as well: a round trip.")] = False,
    backend: BackendOption = None,
    config: ConfigOption = None,
) -> int:
    """Tell a job whether it still holds its lock: 0, or 76 with the reason.

    For use inside of distlock run, before each side effect. Without --verify only the lease file is read, and no
    backend is asked.
    """
    lease = check_file(need)
    if verify:
        _ask(lease, backend, config)
        check_file(need)  # the answer may have taken long
    return 0


def _backend_of(lease: OwnLease, option: str | None, config: str | None) -> str | None:
    """The file has a profile's name, or a URL without its secrets. Where that is what the environment or the
    configuration chooses anyway, those have the secrets too: None."""
    if option is not None or "***" not in lease.backend:
        return option or lease.backend
    if choose(None, configuration(config), lease.name).shown == lease.backend:
        return None
    raise UsageError(f"--verify: the lease file does not hold the secret of {lease.backend}; name the backend with -b")


def _ask(lease: OwnLease, backend: str | None, config: str | None) -> None:
    with opened(_backend_of(lease, backend, config), config, lease.name) as (engine, _):
        state = engine.inspect(lease.name, TIMEOUT)
    holders = [(index, one.holder.owner) for index, one in each_holder(state) if one.holder]
    if (lease.holder_index, lease.owner) not in holders:
        raise LeaseLost(f"{quoted(lease.name)}: the lease is lost: {describe(state)}")
