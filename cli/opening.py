"""How operators' commands reach the backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from distlock.backend_url import chosen_backend, password
from distlock.backends import open_backend
from distlock.backends.base import Backend, Environment
from distlock.clock import boottime
from distlock.state import state_directory

TIMEOUT = 5.0
"""Seconds that a question to the backend may take."""

BackendOption = Annotated[
    str | None,
    typer.Option("-b", "--backend", metavar="URL", help="Where the lock lives; else DISTLOCK_BACKEND, else local:"),
]


@contextmanager
def opened(option: str | None) -> Iterator[tuple[Backend, str]]:
    """The backend and its URL."""
    url = chosen_backend(option)
    backend = open_backend(url, Environment(boottime, state_directory, password()))
    try:
        yield backend, url
    finally:
        backend.close()
