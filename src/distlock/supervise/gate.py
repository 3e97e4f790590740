"""What lets the child start: a permission that only one can take, and an order.

The renewer, who learns of the grant, starts the child by itself: waking the supervisor first would cost as much as all
of the engine's work. The supervisor may want the opposite at the same moment, because of a signal or because nothing
is heard of the renewer. So it puts a permission into a pipe, and whoever takes it out decides; reading it is one step
in the kernel. A renewer that finds none starts nothing; a supervisor that finds none knows that the child was started,
or is about to be.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from .wire import Channel, SharedDeadline, pipe

_PERMISSION = struct.Struct("<qq")
_ORDER = struct.Struct("<qdq")


class Order(NamedTuple):
    """What the child must know that is not known before the grant."""

    token: int | None
    ttl: float
    lease_file: str
    holder_index: int | None
    """None if it is not to know of any."""


class Parked(NamedTuple):
    """The child before its start."""

    pid: int
    group: int
    """Its process group; 0 if it shares the supervisor's."""


class Gate:
    """Made before the forks; each process then calls the ``in_…`` method that is its own."""

    def __init__(self) -> None:
        self.permission, self._permit = pipe()
        """``permission`` is readable while there is one."""
        self._orders_in, self._orders_out = pipe()
        os.set_blocking(self.permission, False)

    def in_supervisor(self) -> None:
        """Once the renewer is forked: it alone gives orders, and its end ends the child that waits for one."""
        os.close(self._orders_out)

    @property
    def of_renewer(self) -> tuple[int, ...]:
        """The descriptors that it keeps."""
        return self.permission, self._permit, self._orders_out

    def child_is_forked(self) -> None:
        os.close(self._orders_in)

    def permit(self, parked: Parked) -> None:
        os.write(self._permit, _PERMISSION.pack(*parked))

    def take(self) -> Parked | None:
        """The permission, if there is one; there is none then."""
        try:
            return Parked(*_PERMISSION.unpack(os.read(self.permission, _PERMISSION.size)))
        except BlockingIOError:
            return None

    def order(self, order: Order) -> bool:
        """Once. False if nobody is there to be started."""
        try:
            token = -1 if order.token is None else order.token
            index = -1 if order.holder_index is None else order.holder_index
            os.write(self._orders_out, _ORDER.pack(token, order.ttl, index) + os.fsencode(order.lease_file))
        except BrokenPipeError:
            return False
        os.close(self._orders_out)
        return True

    def await_order(self) -> Order | None:
        """In the child; None if there is to be no start."""
        data = b""
        while piece := os.read(self._orders_in, 65536):
            data += piece
        if len(data) < _ORDER.size:
            return None
        token, ttl, index = _ORDER.unpack_from(data)
        return Order(None if token < 0 else token, ttl, os.fsdecode(data[_ORDER.size :]), None if index < 0 else index)


class Links(NamedTuple):
    """What a process of a run has in common with the others."""

    channel: Channel
    """Its own end."""
    deadline: SharedDeadline
    gate: Gate
