"""What the renewer gets from the program that it works for: its descriptors, and one order.

The order holds the URL and the password of the backend; a command line would show them to everybody.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any, NamedTuple

from ..leasing import Wanted

LINE, PAGE, HOST = 3, 4, 5
"""Descriptors of the renewer: the socket to the host, the shared deadline, the pidfd of the host. A process that was
forked off the host keeps the socket open; the pidfd tells the host's end all the same."""

_LENGTH = struct.Struct("<I")


class Order(NamedTuple):
    wanted: Wanted
    backend: str
    password: str | None
    grace: float

    def encode(self) -> bytes:
        data = json.dumps(self._replace(wanted=self.wanted._asdict())._asdict()).encode("ascii")  # type: ignore[arg-type]
        return _LENGTH.pack(len(data)) + data


def read_order(descriptor: int) -> Order:
    """Blocks until it is there. Raises EOFError if the host is gone."""
    (length,) = _LENGTH.unpack(_exactly(descriptor, _LENGTH.size))
    fields: dict[str, Any] = json.loads(_exactly(descriptor, length))
    wanted = fields["wanted"]
    wanted["outer_owners"] = tuple(wanted["outer_owners"])
    return Order(**{**fields, "wanted": Wanted(**wanted)})


def _exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(descriptor, size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
