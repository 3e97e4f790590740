"""Whether a backend is good enough for the job: the safety class asked for with ``--require``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .backends.base import Refused

if TYPE_CHECKING:
    from .backends.base import Backend, Safety

CLASSES: tuple[Safety, ...] = ("efficiency", "correctness")
"""The lower one first."""


def refuse_embedded_default(asked: str = "--require correctness", option: str = "-b") -> None:
    """A crontab without DISTLOCK_BACKEND must not quietly lock each host by itself. Raises Refused."""
    raise Refused(
        f"{asked}: no backend is named, and the default local: locks this host alone; name one with {option} or"
        " DISTLOCK_BACKEND (local: too, if one host is meant)"
    )


def check_class(backend: Backend, shown_url: str, required: Safety, timeout: float) -> None:
    """Asks the server only if the class depends on it. Raises Refused with the reason; Unavailable."""
    if CLASSES.index(backend.safety) < CLASSES.index(required):
        raise Refused(
            f"{shown_url} is for {backend.safety} locks, not for --require {required}: a lock there is exclusive until"
            f" {backend.exclusive_until}"
        )
    if required == "correctness" and (found := backend.shortcomings(timeout)):
        raise Refused(f"{shown_url} does not do for --require {required} as it is set up: {'; '.join(found)}")
