"""``distlock init``: what a backend needs before its first lock."""

from __future__ import annotations

from distlock.backend_url import masked

from .opening import TIMEOUT, BackendOption, opened


def init(backend: BackendOption = None) -> None:
    """Make what the backend needs before its first lock, and check that it may be used.

    For PostgreSQL its tables, by a role that may make them, so that those who lock need not be allowed to. Other
    backends need nothing. Doing it again does no harm.
    """
    with opened(backend) as (engine, url):
        found = engine.prepare(TIMEOUT)
    for line in found or (f"{masked(url)} needs nothing",):
        print(line)
