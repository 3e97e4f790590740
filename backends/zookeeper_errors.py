"""What goes wrong between us and an ensemble, as errors of the contract. The one place where they are translated."""

from __future__ import annotations

import kazoo.exceptions as its

from .base import DistlockError, Refused, Unavailable
from .connection_errors import of_connecting

# By ZooKeeper's numbers, of which not every kazoo has a class.
_SAID = {
    -4: "lost the connection",
    -7: "took too long",
    -13: "has no quorum",
    -118: "says that the session is on another server by now",
    -119: "has lost its ensemble and only reads",
    -122: "took too long",
    -127: "is overloaded and turns requests down",
}
_FOR_GOOD = {
    -6: "is too old, ZooKeeper 3.5 is the oldest that will do",
    -108: "has an ephemeral node where the folder of a lock belongs",
    -120: "has local sessions that it does not upgrade: set localSessionsUpgradingEnabled=true",
    -125: "has a quota on the path, and it is used up",
}
_REFUSED = {
    -102: "does not allow it: the user or password is wrong, or lacks a permission",
    -115: "refuses the user or password",
    -124: "wants a login by SASL, which distlock does not have",
}


class Expired(Exception):
    """The ensemble has ended the session, and with it all nodes that it owned. Never leaves the engine."""


class NotZooKeeper(Exception):
    """What came is no answer of a ZooKeeper."""


FAILURES = (OSError, EOFError, NotZooKeeper, its.KazooException)
"""What goes wrong with a connection, before it is translated."""


def of_code(code: int) -> its.KazooException:
    """The error that a server has answered with."""
    error = its.EXCEPTIONS[code]() if code in its.EXCEPTIONS else its.KazooException()
    error.code = code
    return error


def translated(error: Exception, address: str) -> DistlockError:
    """One line that names the server."""
    code = getattr(error, "code", 0)
    if code in _SAID:
        return Unavailable(f"{address} {_SAID[code]}")
    if code in _FOR_GOOD:
        return Unavailable(f"{address} {_FOR_GOOD[code]}", permanent=True)
    if code in _REFUSED:
        return Refused(f"{address} {_REFUSED[code]}")
    if isinstance(error, NotZooKeeper):
        return Unavailable(f"{address} does not speak the ZooKeeper protocol", permanent=True)
    if isinstance(error, EOFError):
        return Unavailable(f"{address} closed the connection: it has no quorum, is starting, or has too many clients")
    if isinstance(error, its.KazooException):
        return Unavailable(f"{address} answers with error {code} ({type(error).__name__})")
    if isinstance(error, TimeoutError):
        return Unavailable(f"{address} does not answer")
    return of_connecting(error, address) or Unavailable(f"{address}: {type(error).__name__}")
