"""What goes wrong between us and an ensemble, as errors of the contract. The one place where they are translated."""

from __future__ import annotations

import socket

import kazoo.exceptions as its

from .base import ConfigurationError, DistlockError, Refused, Unavailable

_OF_PEM_FILES = ("PEM_LIB", "NO_CERTIFICATE_OR_CRL_FOUND", "KEY_VALUES_MISMATCH", "NO_START_LINE")
_SAID = {
    its.ConnectionLoss: "lost the connection",
    its.OperationTimeoutError: "took too long",
    its.RequestTimeoutError: "took too long",
    its.SessionMovedError: "says that the session is on another server by now",
    its.NotReadOnlyCallError: "has lost its ensemble and only reads",
    its.NewConfigNoQuorumError: "has no quorum",
    its.ThrottledOpError: "is overloaded and turns requests down",
}
_FOR_GOOD = {
    its.UnimplementedError: "is too old, ZooKeeper 3.5 is the oldest that will do",
    its.EphemeralOnLocalSessionError: (
        "has local sessions that it does not upgrade: set localSessionsUpgradingEnabled=true"
    ),
    its.NoChildrenForEphemeralsError: "has an ephemeral node where the folder of a lock belongs",
    its.QuotaExceededError: "has a quota on the path, and it is used up",
}


class Expired(Exception):
    """The ensemble has ended the session, and with it all nodes that it owned. Never leaves the engine."""


class NotZooKeeper(Exception):
    """What came is no answer of a ZooKeeper."""


# What the calls of a session raise, before it is translated. ValueError and struct.error come of answers cut short.
FAILURES = (OSError, EOFError, NotZooKeeper, its.KazooException)


def translated(error: Exception, address: str) -> DistlockError:
    """One line that names the server."""
    for kind, words in _SAID.items():
        if isinstance(error, kind):
            return Unavailable(f"{address} {words}")
    for kind, words in _FOR_GOOD.items():
        if isinstance(error, kind):
            return Unavailable(f"{address} {words}", permanent=True)
    if isinstance(error, its.NoAuthError):
        return Refused(f"{address} does not allow it: the user or password is wrong, or lacks a permission")
    if isinstance(error, (its.AuthFailedError, its.SessionClosedRequireSaslError)):
        return Refused(f"{address} refuses the user or password")
    if isinstance(error, NotZooKeeper):
        return Unavailable(f"{address} does not speak the ZooKeeper protocol", permanent=True)
    if isinstance(error, EOFError):
        return Unavailable(f"{address} closed the connection: it has no quorum, is starting, or has too many clients")
    if isinstance(error, its.KazooException):
        return Unavailable(f"{address}: {type(error).__name__}")
    return _connection(error, address)


def _connection(error: Exception, address: str) -> DistlockError:
    import ssl  # some milliseconds, which a start without trouble does not need

    if isinstance(error, ssl.SSLCertVerificationError):
        return Refused(f"{address} has a certificate that does not pass: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "no reason given"
        if reason in _OF_PEM_FILES or "PEM lib" in str(error):  # newer OpenSSLs give no reason for it
            return ConfigurationError(f"{address}: a file of ca=, cert= or key= is no usable PEM file")
        if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
            return Refused(f"{address} refuses our certificate, or wants one: give cert= and key=")
        # A server that restarts cuts the handshake short; one that does not speak TLS never will.
        wrong = "WRONG_VERSION" in reason or "RECORD_LAYER" in reason
        return Unavailable(f"{address} does not speak TLS" if wrong else f"{address}: TLS: {reason}", permanent=wrong)
    if isinstance(error, TimeoutError):
        return Unavailable(f"{address} does not answer")
    if isinstance(error, socket.gaierror):
        return Unavailable(f"{address}: the name is not resolved: {error.strerror}")
    if isinstance(error, OSError) and error.strerror:
        return Unavailable(f"{address} is not reached: {error.strerror}")
    return Unavailable(f"{address}: {type(error).__name__}")
