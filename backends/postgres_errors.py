"""The one place where errors of libpq and of the server become those of the contract."""

from __future__ import annotations

import re

from .base import ConfigurationError, DistlockError, Refused, Unavailable

MISSING = ("42P01", "3F000")
"""SQLSTATE of a table or schema that is not there."""
UNDEFINED_COLUMN = "42703"
AGAIN = ("40001", "40P01")
"""Of a statement that another one was in the way of; the server has undone it."""
_TRANSIENT = {
    "25006": "is read-only: a standby, or default_transaction_read_only is on",
    "53100": "has no disk space left",
    "53200": "is out of memory",
    "53300": "has no connection left",
    "53400": "has reached a limit of its configuration",
    "55P03": "has the lock's row locked by somebody: lock_timeout is over",
    "57014": "has cancelled the statement: statement_timeout is over, or somebody did it",
    "57P01": "has ended the connection: an administrator's command",
    "57P02": "has crashed and is recovering",
    "57P03": "is starting up or shutting down",
    "57P05": "has ended the connection: idle_session_timeout is over",
}
_LOGIN = (
    # What the server says when it lets nobody in. libpq passes on the text only, without its SQLSTATE.
    (r"password authentication failed|no such user|auth_query", Refused, "refuses the user or password"),
    (r"no password supplied|fe_sendauth", Refused, "wants a password"),
    (r'role "[^"]*" does not exist', Refused, "refuses the user or password"),
    (r"is not permitted to log in|permission denied for database", Refused, "does not let this user in"),
    (r"no pg_hba\.conf entry|pg_hba\.conf rejects", Refused, "has no entry in pg_hba.conf that lets us in"),
    (r"authentication failed", Refused, "refuses the login"),
    (
        r"certificate verify failed|does not match host name|server certificate for",
        Refused,
        "has a certificate that does not pass",
    ),
    (r"alert|certificate required|client certificate", Refused, "refuses our certificate, or wants one"),
    (r'database "[^"]*" does not exist|no such database', ConfigurationError, "does not have the database of the URL"),
    (r"definition of service|service file", ConfigurationError, "is not found: the service is not defined"),
    (
        r"root certificate file|could not (?:load|read|open) .*(?:file|key)|private key file",
        ConfigurationError,
        "is not reached: a file of sslrootcert=, sslcert= or sslkey= is no usable one",
    ),
    (
        r"invalid (?:\w+ )?value|invalid \w+ option|must be|sslmode value",
        ConfigurationError,
        "is not reached: a parameter of the URL has a value that libpq does not take",
    ),
    (
        r"unsupported startup parameter",
        ConfigurationError,
        "is behind a pooler that does not take a parameter of the URL",
    ),
    (r"does not support SSL|server does not support", ConfigurationError, "does not speak TLS"),
    (r"starting up|shutting down|recovery mode|not yet accepting", Unavailable, "is starting up or shutting down"),
    (
        r"too many (?:clients|connections)|remaining connection slots|no more connections",
        Unavailable,
        "has no connection left",
    ),
    (
        r"session is read-only|session is not read-write|is in hot standby|not in hot standby",
        Unavailable,
        "is read-only: a standby",
    ),
    (r"translate host name|Name or service not known|resolve", Unavailable, "is not reached: the name is not resolved"),
    (r"Connection refused", Unavailable, "is not reached: Connection refused"),
    (r"No such file or directory", Unavailable, "is not reached: there is no such socket"),
    (
        r"closed the connection unexpectedly|Connection reset|could not receive data|EOF detected",
        Unavailable,
        "closed the connection",
    ),
)


class MissingTables(Exception):
    """A table of ours is not there (yet)."""


class Dropped(Exception):
    """The connection went before there was an answer; whether the statement was carried out is not known."""


def of_login(said: str, address: str, *, needs_password: bool) -> DistlockError:
    """What libpq says may quote the user and the database; of that, nothing is shown."""
    if needs_password:
        return Refused(f"{address} wants a password")
    for pattern, kind, words in _LOGIN:
        if re.search(pattern, said):
            return kind(f"{address} {words}")
    return Unavailable(f"{address} is not reached: {_short(said)}")


def of_answer(state: str, said: str, address: str, constraint: str) -> DistlockError:
    """``state`` is the SQLSTATE of an answer, '' if it has none."""
    if state in _TRANSIENT:
        return Unavailable(f"{address} {_TRANSIENT[state]}")
    if constraint == "distlock_lock_advisory_key":
        return Unavailable(
            f"{address}: another lock has the same 64-bit key as this one: one of the two needs another name",
            permanent=True,
        )
    if state == "42501":
        return Refused(f"{address} does not allow it: {_short(said)}")
    if state in ("42703", "42883", "42601"):
        return Unavailable(
            f"{address}: tables that this program does not know, or a server older than PostgreSQL 12: {_short(said)}",
            permanent=True,
        )
    return Unavailable(f"{address}: {_short(said)}" + (f" ({state})" if state else ""))


def _short(said: str) -> str:
    """The first line, without what libpq puts in front."""
    line = next((line for line in said.splitlines() if line.strip()), "no reason given").strip()
    line = re.sub(r"^connection to server (?:at|on) .*? failed: |^connection failed: ", "", line)
    return re.sub(r"^(?:FATAL|ERROR|PANIC): +", "", line)[:200]
