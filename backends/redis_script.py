"""Scripts of ours and calls of them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Script(NamedTuple):
    text: bytes
    sha: str


_OF_SEVERAL = frozenset({"acquire_several", "leave_several", "renew_several", "inspect", "mark", "revoke", "purge"})
"""Scripts that look at each of several holders. The others do not carry the text for that: it is sent by each run."""


@cache
def script(name: str) -> Script:
    """``redis_NAME.lua`` behind what all of them share."""
    folder = Path(__file__).parent
    parts = ("common", "several", name) if name in _OF_SEVERAL else ("common", name)
    text = b"".join((folder / f"redis_{part}.lua").read_bytes() for part in parts)
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


class ServerTime(NamedTuple):
    """An argument: what the clock of the server that gets it says at an instant of ours."""

    instant: float


class Call(NamedTuple):
    script: Script
    keys: Sequence[str]
    arguments: Sequence[str | bytes | ServerTime]

    def words(self, server_time_at: Callable[[float], str], *, by_text: bool) -> tuple[str | bytes, ...]:
        head: tuple[str | bytes, ...] = ("EVAL", self.script.text) if by_text else ("EVALSHA", self.script.sha)
        arguments = (server_time_at(one.instant) if isinstance(one, ServerTime) else one for one in self.arguments)
        return (*head, str(len(self.keys)), *self.keys, *arguments)
