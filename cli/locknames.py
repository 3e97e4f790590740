"""``distlock locknames``, hidden: what the completions ask. Its words are no promise to anybody else."""

from __future__ import annotations

from .opening import BackendOption, opened
from .settings import ConfigOption

_PATIENCE = 1.0
"""Seconds: whoever pressed TAB waits for it. The completions also end the process after this time."""


def locknames(backend: BackendOption = None, config: ConfigOption = None) -> None:
    """Print the names of the locks on record, one a line."""
    with opened(backend, config) as (engine, _):
        names = sorted(state.name for state in engine.locks(_PATIENCE))
    for name in names:
        print(name)
