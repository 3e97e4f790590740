"""Requests and answers as bytes: kazoo's protocol, with what is no ZooKeeper told apart."""

from __future__ import annotations

import struct
from typing import Any

import kazoo.exceptions as its
from kazoo.protocol.serialization import Transaction, int_struct, multiheader_struct

from .zookeeper_errors import NotZooKeeper, of_code

_ERROR = -1  # in the place of a step's kind
_NOT_TO_BLAME = (0, -2)
"""Steps before the one that could not be carried out, and behind it."""


class NotDone(Exception):
    """A transaction was not carried out, for this step of it: a node was there, or was not, has changed or is not
    empty."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


Answer = Any  # what kazoo makes of it, or one of ANSWERS
ANSWERS = (its.NoNodeError, its.NodeExistsError, its.BadVersionError, its.NotEmptyError, NotDone)
"""Errors that are answers like others: given, not raised."""


def packed(number: int, request: Any) -> bytes:
    return framed(int_struct.pack(number) + int_struct.pack(request.type) + bytes(request.serialize()))


def framed(message: bytes) -> bytes:
    return bytes(int_struct.pack(len(message))) + message


def parsed(kind: Any, message: bytes) -> Any:
    try:
        return kind.deserialize(message, 0)
    except (ValueError, IndexError, struct.error) as error:
        raise NotZooKeeper from error


def answer_to(request: Any, code: int, body: bytes) -> Answer:
    if code:
        return of_code(code)
    if isinstance(request, Transaction):
        return _outcome(body)
    return parsed(type(request), body) if hasattr(request, "deserialize") else None


def _outcome(body: bytes) -> Answer:
    """None if it was carried out, else why not. kazoo's own reading fails for errors that it has no class for."""
    try:
        for step in range(len(body)):
            kind, done, _ = multiheader_struct.unpack_from(body, step * (multiheader_struct.size + int_struct.size))
            if done or kind != _ERROR:
                return None
            (code,) = int_struct.unpack_from(body, (step + 1) * multiheader_struct.size + step * int_struct.size)
            if code not in _NOT_TO_BLAME:
                error = of_code(code)
                return NotDone(step) if isinstance(error, ANSWERS) else error
    except struct.error as error:
        raise NotZooKeeper from error
    return None
