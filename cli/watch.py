"""``distlock status --watch``: looks again and again, and shows each look on a screen or line by line."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from distlock.backends.base import Unavailable
from distlock.durations import duration_of, format_duration
from distlock.errors import UsageError
from distlock.quoting import quoted

from .opening import TIMEOUT

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Self

    from distlock.backend_choice import Chosen
    from distlock.backends.base import Backend, LockState

DEFAULT_INTERVAL = 2.0
SHORTEST_INTERVAL = 0.5
"""Each look is a question about all locks; more often, the watching would be the backend's main work."""
LONGEST_INTERVAL = 3600.0
_PATIENCE = 0.5
"""Seconds that the end waits for a look that is under way, so that its connection is closed and not dropped."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

Open = Callable[[], AbstractContextManager["tuple[Backend, Chosen]"]]
Choose = Callable[[Iterable["LockState"]], list["LockState"]]


class Look(NamedTuple):
    """What there was to see at ``at`` (wall clock, for people), and what keeps us from seeing more."""

    at: float
    backend: str
    states: list[LockState]
    problem: str = ""


class View(Protocol):
    """Where looks are shown. Inside of its context it owns the terminal, if it needs one."""

    @property
    def keyboard(self) -> int | None:
        """A descriptor on which q may be typed."""

    def show(self, look: Look) -> None: ...

    def resize(self) -> None: ...

    def suspend(self) -> None:
        """Give the terminal back, stop this process, and take the terminal again when it goes on."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


def interval_of(text: str | None, watch: bool) -> float:
    if text is None:
        return DEFAULT_INTERVAL
    if not watch:
        raise UsageError("--interval goes with --watch")
    seconds = duration_of("--interval", text)
    if not SHORTEST_INTERVAL <= seconds <= LONGEST_INTERVAL:
        bounds = f"from {format_duration(SHORTEST_INTERVAL)} to {format_duration(LONGEST_INTERVAL)}"
        raise UsageError(f"--interval {quoted(text)}: {bounds}")
    return seconds


def watch_locks(open_it: Open, choose: Choose, interval: float, as_json: bool) -> int:
    """Until q, Ctrl-C, or the reader of a pipe is gone: 0. Other signals end it as they end any program. A backend
    that does not answer is asked again; one that refuses, or needs a repair, ends it with its error."""
    view = _view(as_json, interval)
    signals = _Signals()
    try:
        with signals, _Looks(open_it, choose, interval) as looks, view:
            number = _until_the_end(looks, signals, view)
    except BrokenPipeError:
        return 0
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        number = signal.SIGHUP  # the terminal is gone, and what says so has not arrived yet
    if number not in (0, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    return 0


def _view(as_json: bool, interval: float) -> View:
    from .watch_lines import Lines

    if as_json or not sys.stdout.isatty():
        return Lines(as_json, interval)
    from .watch_screen import Screen, can_show

    return Screen(interval) if can_show() else Lines(as_json, interval)


def _until_the_end(looks: _Looks, signals: _Signals, view: View) -> int:
    """The number of the signal that was the end, 0 for any other."""
    poll = select.poll()
    for descriptor in (looks.ready, signals.arrived):
        poll.register(descriptor, select.POLLIN)
    output = sys.stdout.fileno()
    poll.register(output, 0)  # tells of an error alone: that its reader is gone
    if view.keyboard is not None:
        poll.register(view.keyboard, select.POLLIN)
    while True:
        for descriptor, event in poll.poll():
            if descriptor == looks.ready:
                view.show(looks.take())
            elif descriptor == signals.arrived:
                for number in signals.take():
                    if number in _ENDING:
                        return number
                    if number == signal.SIGTSTP:
                        view.suspend()
                    else:
                        view.resize()
            elif descriptor == view.keyboard:
                keys = os.read(descriptor, 64) if event & select.POLLIN else b""
                if not keys:
                    return signal.SIGHUP
                if b"q" in keys.lower():
                    return 0
            else:
                return 0 if view.keyboard is None else signal.SIGHUP


class _Signals:
    """Signals as bytes on a descriptor. Those that were ignored stay ignored (nohup)."""

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def __enter__(self) -> None:
        self.arrived, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*_ENDING, signal.SIGTSTP, signal.SIGWINCH):
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, lambda *_: None)

    def take(self) -> bytes:
        return os.read(self.arrived, 64)

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self.arrived)
        os.close(self._write)


class _Looks:
    """Looks from a thread of their own: a key or a resize waits for no backend."""

    def __init__(self, open_it: Open, choose: Choose, interval: float) -> None:
        self._open, self._choose, self._interval = open_it, choose, interval
        self._stop = threading.Event()
        self._latest: Look | BaseException = Look(time.time(), "", [])
        self._thread = threading.Thread(target=self._run, name="looks", daemon=True)

    def __enter__(self) -> Self:
        self.ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread.start()
        return self

    def take(self) -> Look:
        """The latest; raises what ended the looking."""
        os.eventfd_read(self.ready)
        latest = self._latest
        if isinstance(latest, BaseException):
            raise latest
        return latest

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(_PATIENCE)  # its descriptor stays open: a look that still goes on may write to it

    def _put(self, latest: Look | BaseException) -> None:
        self._latest = latest
        os.eventfd_write(self.ready, 1)

    def _run(self) -> None:
        last = Look(time.time(), "", [])
        while not self._stop.is_set():
            try:
                with self._open() as (engine, chosen):
                    while not self._stop.is_set():
                        last = Look(time.time(), chosen.shown, self._choose(engine.locks(TIMEOUT)))
                        self._put(last)
                        self._stop.wait(self._interval)
            except Unavailable as error:
                if error.permanent:
                    self._put(error)
                    return
                self._put(last._replace(problem=str(error)))
                self._stop.wait(self._interval)
            except BaseException as error:  # noqa: BLE001 - raised where somebody sees it
                self._put(error)
                return
