"""Requests and answers as bytes: kazoo's protocol, with what is no ZooKeeper told apart."""

from __future__ import annotations

import struct
from typing import Any

import kazoo.exceptions as its
from kazoo.protocol.serialization import int_struct

from .zookeeper_errors import NotZooKeeper, of_code

Answer = Any  # what kazoo makes of it, or one of ANSWERS
ANSWERS = (its.NoNodeError, its.NodeExistsError, its.BadVersionError)
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
    return parsed(type(request), body) if hasattr(request, "deserialize") else None
