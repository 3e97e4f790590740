"""Where ``--log-to`` writes: checked before anything starts, without opening a connection."""

from __future__ import annotations

import os
import stat
from typing import Literal, NamedTuple

from .backends.base import ConfigurationError

Kind = Literal["syslog", "journal", "file"]
Format = Literal["text", "json"]

_SOCKETS: dict[Kind, str] = {"syslog": "/dev/log", "journal": "/run/systemd/journal/socket"}
_WHOSE = {"syslog": "no syslog daemon listens there", "journal": "systemd-journald does not run here"}


class LogTarget(NamedTuple):
    kind: Kind
    path: str
    format: Format


def is_daemon(text: str) -> bool:
    """Whether it is no file's path."""
    word, colon, place = text.partition(":")
    return word in _SOCKETS and (not colon or place.startswith("/"))


def log_target(text: str, format: Format, option: str = "--log-to") -> LogTarget:  # noqa: A002 - as the option's name
    """``syslog``, ``journal``, either with ``:SOCKET`` for one at another place, or a file's path; one that is called
    syslog is ./syslog. Raises ConfigurationError for what cannot be written."""
    for kind, usual in _SOCKETS.items():
        if is_daemon(text) and text.startswith(kind):
            path = text.partition(":")[2] or usual
            try:
                is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
            except OSError:
                is_socket = False
            if not is_socket:
                raise ConfigurationError(f"{option} {kind}: {path} is no socket: {_WHOSE[kind]}")
            return LogTarget(kind, path, format)
    if not text:
        raise ConfigurationError(f"{option} is empty; it is syslog, journal or a file")
    path = os.path.abspath(text)
    try:
        os.close(open_file(path))
    except OSError as error:
        raise ConfigurationError(f"{option}: {path}: {(error.strerror or '').lower()}") from error
    return LogTarget("file", path, format)


def open_file(path: str) -> int:
    """For one line: a file that was rotated away is not written to any more. O_NONBLOCK, since a FIFO that nobody
    reads must not stop anybody."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    return os.open(path, flags, 0o640)
