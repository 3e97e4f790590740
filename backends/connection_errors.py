"""Why there is no connection, or none over TLS, as errors of the contract."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from .base import ConfigurationError, Refused, Unavailable

if TYPE_CHECKING:
    from .base import DistlockError

_OF_PEM_FILES = ("PEM_LIB", "NO_CERTIFICATE_OR_CRL_FOUND", "KEY_VALUES_MISMATCH", "NO_START_LINE")


def of_connecting(error: BaseException | None, address: str) -> DistlockError | None:
    """None for what is no error of the operating system, the resolver or TLS."""
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
    if isinstance(error, socket.gaierror):
        return Unavailable(f"{address}: the name is not resolved: {error.strerror}")
    if isinstance(error, OSError) and error.strerror:
        return Unavailable(f"{address} is not reached: {error.strerror}")
    return None
