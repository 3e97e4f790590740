"""The one place where errors of redis-py and of the server become those of the contract."""

from __future__ import annotations

import re

import redis.exceptions as its

from .base import ConfigurationError, DistlockError, Refused, Unavailable
from .connection_errors import of_connecting

_TRANSIENT = {
    "READONLY": "is a read-only replica",
    "LOADING": "is loading its data",
    "BUSY": "is busy with somebody's script",
    "OOM": "is out of memory: its maxmemory is reached",
    "MISCONF": "refuses to write: it cannot save its data to disk",
    "NOREPLICAS": "refuses to write: it has too few replicas",
    "CLUSTERDOWN": "belongs to a cluster that is down",
    "MASTERDOWN": "is a replica that has lost its master",
    "TRYAGAIN": "belongs to a cluster that is moving the lock's slot",
    "NOSCRIPT": "forgets its scripts all the time",
}
MAY_PASS = frozenset({"READONLY", "LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"})
"""Codes that another server, or the same one in a moment, will not answer with."""
_CLUSTER = "belongs to a Redis Cluster, which a single address does not reach: use redis+cluster://"
_PERMANENT = {"MOVED": _CLUSTER, "ASK": _CLUSTER, "CROSSSLOT": _CLUSTER}
_REFUSED = {
    "NOAUTH": "wants a password",
    "WRONGPASS": "refuses the user or password",
    "DENIED": "runs in protected mode: it takes connections from its own host only",
}
_NOT_HERE = "Script attempted to access a non local key"
"""A key of ours went to another node of a cluster while a script ran."""


class Answered(Unavailable):
    """The server is there and does not serve this now. ``code`` is the first word of its answer; ``node`` is the host
    and port it sends us to, the host empty if it is its own."""

    def __init__(self, message: str, code: str, node: tuple[str, int] | None = None, *, permanent: bool) -> None:
        super().__init__(message, permanent=permanent)
        self.code = code
        self.node = node


def is_drop(error: its.RedisError) -> bool:
    """Whether the connection went, rather than an answer came or no time was left. Several answers are subclasses."""
    return type(error) is its.ConnectionError and not error.status_code


def translated(error: its.RedisError, address: str) -> DistlockError:
    """One line that names the server; what the server says is cut short, what redis-py adds is dropped."""
    text = str(error).replace("\n", " ").replace("\r", " ")
    code = error.status_code or "".join(re.findall(r"^[A-Z]{2,}(?= )", text))
    if _NOT_HERE in text:
        code = "TRYAGAIN"
    if code in _TRANSIENT:
        return Answered(f"{address} {_TRANSIENT[code]}", code, permanent=False)
    if code in _PERMANENT:
        node = error.node_addr if isinstance(error, its.AskError) else None
        return Answered(f"{address} {_PERMANENT[code]}", code, node, permanent=True)
    if code in _REFUSED:
        return Refused(f"{address} {_REFUSED[code]}")
    if isinstance(error, its.AuthenticationError):
        return Refused(f"{address} refuses the user or password")
    said = _said(text)
    if code == "NOPERM" or "user executing the script" in text or "ACL failure" in text:
        return Refused(f"{address} does not allow it: {said}")
    if isinstance(error, its.TimeoutError):
        return Unavailable(f"{address} does not answer")
    if isinstance(error, its.ConnectionError) and code != "ERR":
        return _connection(error.__context__, said, address)
    if isinstance(error, its.InvalidResponse):
        return Unavailable(f"{address} does not speak the Redis protocol", permanent=True)
    if "cluster support disabled" in text:
        return ConfigurationError(f"{address} is no node of a Redis Cluster: use redis://")
    if "DB index" in text:
        return ConfigurationError(f"{address} does not have the database of the URL: {said}")
    if text.lower().startswith("unknown command 'sentinel'"):
        return Unavailable(f"{address} is no sentinel", permanent=True)
    if text.lower().startswith("unknown command"):
        return Unavailable(f"{address} is too old, Redis 6 is the oldest that will do: {said}", permanent=True)
    return Unavailable(f"{address}: {said}")


def _connection(cause: BaseException | None, said: str, address: str) -> DistlockError:
    if told := of_connecting(cause, address):
        return told
    if "closed by server" in said:
        return Unavailable(f"{address} closed the connection")
    return Unavailable(f"{address}: {said}")


def _said(text: str) -> str:
    """Without where in our script it happened."""
    return re.sub(r",? script: \S+, on @user_script:\d+\.?|Error running script.*?: @user_script:\d+: ", "", text)[:200]
