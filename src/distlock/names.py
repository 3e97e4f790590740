"""Lock names: which ones there are.

Checked once, before anything starts, so that every engine can take any name that got through. Names are never folded
or normalised: two names that differ in a byte are two locks.
"""

from __future__ import annotations

import os

from .errors import UsageError
from .quoting import quoted

MAX_BYTES = 200


def parse_name(argument: str) -> str:
    """The lock name in a word of the command line. Raises UsageError.

    sys.argv was decoded with the locale of the process. The bytes are decoded again here, as UTF-8, because two jobs
    under LC_ALL=C and under a UTF-8 locale must mean the same lock.
    """
    try:
        name = os.fsencode(argument).decode("utf-8")
    except UnicodeError:
        raise UsageError(f"lock name {quoted(argument)} is not valid UTF-8") from None
    return check_name(name)


def check_name(name: str) -> str:
    """The name itself, if it can be one: for names that are text already, from a file or from Python. Raises
    UsageError."""
    try:
        size = len(name.encode("utf-8"))
    except UnicodeError:
        raise UsageError(f"lock name {quoted(name)} is not valid UTF-8") from None
    if not name:
        raise UsageError("lock name '' is empty")
    if size > MAX_BYTES:
        raise UsageError(f"lock name {quoted(name)} is too long: {size} bytes of UTF-8, {MAX_BYTES} are allowed")
    if name.startswith("-"):
        # A forgotten argument would otherwise turn the next option into the name of a lock that nobody else uses.
        raise UsageError(f"lock name {quoted(name)} begins with '-'")
    for character in name:
        if _is_control(character):
            raise UsageError(f"lock name {quoted(name)} contains the control character {quoted(character)}")
        if character in "{}":
            # Redis Cluster takes braces in a key for its hash tag: the parts of one lock would land on two servers.
            raise UsageError(f"lock name {quoted(name)} contains {quoted(character)}; braces are not allowed")
    return name


def _is_control(character: str) -> bool:
    """Unicode's category Cc, a set that can never change, and the two line separators: no name spans lines."""
    code = ord(character)
    return code < 0x20 or 0x7F <= code < 0xA0 or code in (0x2028, 0x2029)
