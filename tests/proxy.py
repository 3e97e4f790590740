"""A TCP proxy on the loopback interface, to cut and delay what runs through it."""

from __future__ import annotations

import selectors
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

from distlock.clock import boottime

_TICK = 0.01


class _Half:
    """One direction of a connection: what was read and when it may be sent."""

    def __init__(self, source: socket.socket, target: socket.socket, *, answers: bool) -> None:
        self.source = source
        self.target = target
        self.answers = answers
        self.waiting: deque[tuple[float, bytes]] = deque()


class Proxy:
    """Passes everything on until told otherwise. Each word of command holds for open and for new connections:

    * ``black_hole()``: what comes is thrown away, nothing is closed, as with packets dropped on the way;
    * ``refuse()``: open connections are reset, new ones refused;
    * ``delay_answers(s)``, ``delay_requests(s)``: they arrive that much later;
    * ``let_pass()``: all is well again. What a black hole swallowed stays lost, so its connections stay dumb.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._upstream = host, port
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._halves: list[_Half] = []
        self._hole = False
        self._delays = {True: 0.0, False: 0.0}
        self._stop = False
        self.accepted = 0
        self.swallowed = 0
        """Bytes, in the black hole."""
        self.answered = 0
        """Pieces of answers that have been passed on."""
        self._listener: socket.socket | None = None
        self._listen(0)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def _listen(self, port: int) -> None:
        listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port: int = listener.getsockname()[1]
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ)

    def black_hole(self) -> None:
        with self._lock:
            self._hole = True
            for half in self._halves:
                half.waiting.clear()

    def refuse(self) -> None:
        with self._lock:
            if self._listener is not None:
                self._selector.unregister(self._listener)
                self._listener.close()
                self._listener = None
            while self._halves:
                self._drop(self._halves[0])

    def delay_answers(self, seconds: float) -> None:
        with self._lock:
            self._delays[True] = seconds

    def delay_requests(self, seconds: float) -> None:
        with self._lock:
            self._delays[False] = seconds

    def let_pass(self) -> None:
        with self._lock:
            self._hole = False
            self._delays = {True: 0.0, False: 0.0}
            if self._listener is None:
                self._listen(self.port)

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop:
            ready = self._selector.select(_TICK)
            with self._lock:
                for key, _ in ready:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.data in self._halves:
                        self._read(key.data)
                for half in list(self._halves):
                    self._write(half)

    def _accept(self) -> None:
        assert self._listener is not None
        client, _ = self._listener.accept()
        self.accepted += 1
        try:
            server = socket.create_connection(self._upstream, timeout=1.0)
        except OSError:
            client.close()
            return
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for half in (_Half(client, server, answers=False), _Half(server, client, answers=True)):
            self._halves.append(half)
            self._selector.register(half.source, selectors.EVENT_READ, half)

    def _read(self, half: _Half) -> None:
        try:
            data = half.source.recv(65536)
        except OSError:
            data = b""
        if self._hole:
            self.swallowed += len(data)
            if not data:
                self._selector.unregister(half.source)  # an end that is lost too
            return
        if not data:
            self._drop(half)
            return
        half.waiting.append((boottime() + self._delays[half.answers], data))

    def _write(self, half: _Half) -> None:
        while half.waiting and half.waiting[0][0] <= boottime():
            try:
                half.target.sendall(half.waiting.popleft()[1])
                self.answered += half.answers
            except OSError:
                self._drop(half)
                return

    def _drop(self, half: _Half) -> None:
        """Both directions, with a reset."""
        for other in [h for h in self._halves if h.source in (half.source, half.target)]:
            self._halves.remove(other)
            with suppress(KeyError):
                self._selector.unregister(other.source)
            other.source.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.source.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop = True
        self._thread.join()
        self.refuse()
        self._selector.close()
