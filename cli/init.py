"""``distlock init``: what a backend needs before its first lock."""

from __future__ import annotations

from .opening import TIMEOUT, BackendOption, opened
from .settings import ConfigOption


def init(backend: BackendOption = None, config: ConfigOption = None) -> None:
    """Make what the backend needs before its first lock, and check that it may be used.

    For PostgreSQL its tables, by a role that may make them, so that those who lock need not be allowed to. Other
    backends need nothing. Doing it again does no harm.
    """
    with opened(backend, config) as (engine, chosen):
        found = engine.prepare(TIMEOUT)
    for line in found or (f"{chosen.shown} needs nothing",):
        print(line)
