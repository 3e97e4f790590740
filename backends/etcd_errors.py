"""The one place where errors of gRPC and of the server become those of the contract."""

from __future__ import annotations

import re

from .base import ConfigurationError, DistlockError, Refused, Unavailable
from .etcd_driver import CallFailed, Code


class LeaseNotFound(Unavailable):
    """The server does not know a lease that we named: it ran out, or was revoked."""


class LeaseExists(Unavailable):
    """The server has a lease by the id we chose: an earlier try of ours, whose answer was lost."""


class Full(Unavailable):
    """Nothing more can be written. Removing keys by their lease still goes."""


_WHEN = (
    ("no leader", "has no leader"),
    ("leader changed", "is changing its leader"),
    ("too many requests", "has too many requests to deal with"),
    ("server stopped", "is stopping"),
    ("corrupt", "has found its data corrupt"),
    ("request timed out", "gets no answer from the other members: no quorum"),
)
_LOG_IN_AGAIN = ("invalid auth token", "revision of auth store is old", "user name is empty")


def is_expired_login(error: CallFailed) -> bool:
    """Whether another login is worth a try: tokens run out, die with a member and with every change of a role."""
    return any(words in _details(error) for words in _LOG_IN_AGAIN)


def is_login_needless(error: CallFailed) -> bool:
    return "authentication is not enabled" in _details(error)


def is_endpoints_fault(error: CallFailed) -> bool:
    """Whether another endpoint may do better."""
    return error.code() in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED, Code.RESOURCE_EXHAUSTED)


def is_timeout(error: CallFailed) -> bool:
    return error.code() is Code.DEADLINE_EXCEEDED


def translated(error: CallFailed, address: str) -> DistlockError:
    """One line that names the server. What gRPC adds is dropped."""
    code, details = error.code(), _details(error)
    said = details.removeprefix("etcdserver: ").removeprefix("auth: ")[:200]
    if code is Code.NOT_FOUND and "lease not found" in details:
        return LeaseNotFound(f"{address} does not know the lease any more")
    if code is Code.FAILED_PRECONDITION and "lease already exists" in details:
        return LeaseExists(f"{address} has the lease already")
    if "authentication failed" in details:
        return Refused(f"{address} refuses the user or password")
    if "user name is empty" in details:
        return Refused(f"{address} wants a user and password")
    if code is Code.PERMISSION_DENIED:
        return Refused(f"{address} does not allow it: {said}")
    if any(words in details for words in _LOG_IN_AGAIN):
        return Unavailable(f"{address} takes its own logins back at once: {said}")
    if "database space exceeded" in details:
        return Full(f"{address} is full: its space quota is exceeded")
    for words, meaning in _WHEN:
        if words in details:
            return Unavailable(f"{address} {meaning}")
    if code is Code.DEADLINE_EXCEEDED:
        return Unavailable(f"{address} does not answer")
    if code is Code.UNIMPLEMENTED:
        return Unavailable(f"{address} is no etcd of version 3: {said}", permanent=True)
    if code is Code.UNAVAILABLE:
        return _connection(details, address)
    return Unavailable(f"{address}: {said or code.name}")


def _connection(details: str, address: str) -> DistlockError:
    if "CERTIFICATE_VERIFY_FAILED" in details:
        reason = re.search(r"CERTIFICATE_VERIFY_FAILED: ([^:;]+)", details)
        return Refused(f"{address} has a certificate that does not pass{f': {reason[1].strip()}' if reason else ''}")
    if "Hostname Verification Check failed" in details or "Peer name" in details:
        return Refused(f"{address} has a certificate that does not pass: it is another host's")
    # With TLS 1.3 a server refuses a certificate when the handshake is over for us: gRPC cannot read its reason then.
    refuses = r"alert.*certificate|CERTIFICATE_REQUIRED|BAD_CERTIFICATE|UNKNOWN_CA|Unwrap failed"
    if re.search(refuses, details, re.IGNORECASE):
        return Refused(f"{address} refuses our certificate, or wants one: give cert= and key=")
    if "WRONG_VERSION_NUMBER" in details:
        return Unavailable(f"{address} does not speak TLS", permanent=True)
    if re.search(r"DNS resolution failed|Domain name not found", details):
        return Unavailable(f"{address}: the name is not resolved")
    if "Failed to create security handshaker" in details:
        return ConfigurationError(
            f"{address}: a file of ca=, cert= or key= is no usable PEM file, or cert= and key= are no pair"
        )
    if "Handshake read failed" in details:
        return Unavailable(f"{address} closed the connection in the TLS handshake: does it speak TLS?")
    if "refused" in details:
        return Unavailable(f"{address} is not reached: Connection refused")
    if re.search(r"[Ss]ocket closed|reset by peer|GOAWAY|Stream removed|Broken pipe|EOF", details):
        return Unavailable(f"{address} closed the connection")
    if "handshake" in details.lower():
        return Unavailable(f"{address}: TLS: the handshake failed")
    said = re.sub(r"^.*(?:last error|latest exception): (?:[A-Z]+: )?|ipv[46]:\S+ ?", "", details)
    return Unavailable(f"{address} is not reached: {said[:200]}")


def _details(error: CallFailed) -> str:
    return " ".join(str(error.details() or "").split())
