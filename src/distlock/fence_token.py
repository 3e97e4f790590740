"""A fencing token as a job has it: in a word of the command line or in the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import UsageError
from .quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

GREATEST = 2**63 - 1


def parse_token(text: str) -> int:
    """Raises UsageError, which quotes the text."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{quoted(text)} is not a fencing token: a decimal integer from 0 to 2^63-1")
    token = int(text) if len(text) < 30 else GREATEST + 1  # int() refuses thousands of digits
    if token > GREATEST:
        raise UsageError(f"{quoted(text)} is too great for a fencing token: 2^63-1 is the greatest")
    return token


def token_of(environment: Mapping[str, str]) -> int:
    """That of the run around this process. Raises UsageError where there is none."""
    text = environment.get("DISTLOCK_FENCING_TOKEN")
    if text is None:
        inside = (
            "the backend of this run gives none" if "DISTLOCK_OWNER" in environment else "not inside a distlock run"
        )
        raise UsageError(f"no fencing token: {inside}; name one with --token")
    try:
        return parse_token(text)
    except UsageError as error:
        raise UsageError(f"DISTLOCK_FENCING_TOKEN: {error}") from None
