"""The fast way into ``distlock check``: a job asks before each side effect, and the application itself takes several
times as long to load as Python does. Nothing of typer, and no engine, is imported here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from distlock.checking import check_time_left, own_lease
from distlock.clock import boottime
from distlock.durations import parse_duration
from distlock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlock.checking import OwnLease


def need_in(arguments: Sequence[str]) -> tuple[bool, str | None]:
    """Whether what stands behind ``check`` is simple enough to be understood here, and the value of --need."""
    match list(arguments):
        case []:
            return True, None
        case ["--need", value] if not value.startswith("-"):
            return True, value
        case [option] if option.startswith("--need="):
            return True, option.removeprefix("--need=")
    return False, None


def check_file(need: str | None) -> OwnLease:
    """Raises LeaseLost; UsageError for a --need that is no duration."""
    try:
        seconds = None if need is None else parse_duration(need)
    except UsageError as error:
        raise UsageError(f"--need: {error}") from None
    lease = own_lease(os.environ)
    check_time_left(lease, seconds, boottime())
    return lease
