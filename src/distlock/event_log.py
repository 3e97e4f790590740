"""One line for each event of a run, for ``--log-to``.

Lines are written by a thread of their own: a file system or a daemon that hangs must not keep a lease from being
renewed. What cannot be written is dropped, and said once with -v.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from typing import TYPE_CHECKING

from .log_target import open_file
from .quoting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .log_target import LogTarget

Value = str | int | float | None
_NOTICE, _WARNING, _INFO = 5, 4, 6
_PRIORITIES = {"lost": _WARNING, "stopped": _WARNING, "renewal failed": _WARNING, "not had": _NOTICE}
_DAEMON = 3 << 3
_WAITING = 1000
"""Lines that may wait to be written; more are dropped."""


class EventLog:
    def __init__(
        self, target: LogTarget, common: Mapping[str, Value], pid: int, on_trouble: Callable[[str], None]
    ) -> None:
        """``common`` is told with every event; ``pid`` is the one that cron or systemd knows."""
        self._target = target
        self._common = common
        self._pid = pid
        self._on_trouble = on_trouble
        self._told = False
        self._queue: queue.Queue[bytes | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._thread.start()

    def emit(self, event: str, fields: Mapping[str, Value]) -> None:
        """Never waits."""
        known = {key: value for key, value in {**self._common, **fields}.items() if value is not None}
        try:
            self._queue.put_nowait(self._line(event, known, time.time()))
        except queue.Full:
            pass

    def close(self, timeout: float) -> None:
        """What was told is written, if that takes no longer."""
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)

    def _line(self, event: str, fields: Mapping[str, Value], now: float) -> bytes:
        text = _json(event, fields, now) if self._target.format == "json" else f"{event} {_pairs(fields)}"
        if self._target.kind == "file":
            if self._target.format == "text":
                text = f"{_time(now)} {os.uname().nodename} distlock[{self._pid}]: {text}"
            return f"{text}\n".encode(errors="backslashreplace")
        priority = _PRIORITIES.get(event, _INFO)
        if self._target.kind == "syslog":
            stamp = time.strftime("%b %e %H:%M:%S", time.localtime(now))
            return f"<{_DAEMON | priority}>{stamp} distlock[{self._pid}]: {text}".encode(errors="backslashreplace")
        entries: dict[str, Value] = {
            "MESSAGE": text,
            "PRIORITY": priority,
            "SYSLOG_IDENTIFIER": "distlock",
            "SYSLOG_PID": self._pid,
            "DISTLOCK_EVENT": event,
            **{f"DISTLOCK_{key.upper()}": value for key, value in fields.items()},
        }
        return b"".join(_entry(key, str(value)) for key, value in entries.items())

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            try:
                self._write(line)
            except OSError as error:
                if not self._told:
                    self._told = True
                    self._on_trouble(f"--log-to {self._target.path}: {error.strerror or error}")

    def _write(self, line: bytes) -> None:
        if self._target.kind == "file":
            descriptor = open_file(self._target.path)
            try:
                os.write(descriptor, line)  # one call: lines of several runs do not mix
            finally:
                os.close(descriptor)
            return
        import socket

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(1.0)
            sender.connect(self._target.path)
            sender.send(line)


def _entry(key: str, value: str) -> bytes:
    """As journald takes it: values with newlines would need a length, ours have none."""
    return f"{key}={printable(value)}\n".encode(errors="backslashreplace")


def _time(now: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"


def _json(event: str, fields: Mapping[str, Value], now: float) -> str:
    return json.dumps({"time": _time(now), "event": event, **fields}, ensure_ascii=False)


def _pairs(fields: Mapping[str, Value]) -> str:
    return " ".join(f"{key}={_quoted(str(value))}" for key, value in fields.items())


def _quoted(value: str) -> str:
    """As it is if it is one word, else as a JSON string; never more than one line, and nothing for a terminal."""
    plain = value and value.isprintable() and not set(value) & {" ", '"', "=", "\\"}
    return value if plain else printable(json.dumps(value, ensure_ascii=False))
