"""How operators' commands reach the backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from distlock.backend_choice import Chosen, choose
from distlock.backends import open_backend
from distlock.backends.base import Backend, Environment
from distlock.clock import boottime
from distlock.state import state_directory

from .settings import BACKEND_HELP, configuration

if TYPE_CHECKING:
    from distlock.journal import Journal

TIMEOUT = 5.0
"""Seconds that a question to the backend may take."""

BackendOption = Annotated[str | None, typer.Option("-b", "--backend", metavar="URL|NAME", help=BACKEND_HELP)]


@contextmanager
def opened(option: str | None, config: str | None, lock: str | None = None) -> Iterator[tuple[Backend, Chosen]]:
    """The backend, for one lock that may have its own, or for all; and how it was chosen."""
    chosen = choose(option, configuration(config), lock)
    backend = open_backend(chosen.url, Environment(boottime, state_directory, chosen.password))
    try:
        yield backend, chosen
    finally:
        backend.close()


def journal_of_this_user(busy: float = 2.0) -> Journal:
    """``busy``: seconds for which another one's writing is waited for."""
    from distlock.journal import FILE, Journal

    return Journal(state_directory() / FILE, busy=busy)
