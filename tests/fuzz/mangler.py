"""A TCP proxy whose answers are not those of the server behind it, from some byte on."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

Mangle = Callable[[random.Random, bytes], bytes | None]
"""What arrives in the place of what was answered; None: the connection is closed."""


def garbage(draw: random.Random, data: bytes) -> bytes:
    return draw.randbytes(len(data))


def cut_off(draw: random.Random, data: bytes) -> bytes | None:
    return data[: draw.randrange(len(data))] or None


def torn(draw: random.Random, data: bytes) -> bytes:
    """Some bytes are others."""
    found = bytearray(data)
    for _ in range(1 + len(found) // 20):
        found[draw.randrange(len(found))] = draw.randrange(256)
    return bytes(found)


def doubled(draw: random.Random, data: bytes) -> bytes:
    return data * draw.randrange(2, 50)


def absurd_numbers(draw: random.Random, data: bytes) -> bytes:
    """Every digit is a nine, and each length is enormous: \\xff stands where binary protocols have them."""
    if draw.random() < 0.5:
        return bytes(0x39 if 0x30 <= byte <= 0x39 else byte for byte in data)
    return data[:1] + b"\xff" * 4 + data[5:]


MANGLES: dict[str, Mangle] = {
    "garbage": garbage,
    "cut off": cut_off,
    "torn": torn,
    "doubled": doubled,
    "absurd numbers": absurd_numbers,
}


class Mangler:
    """``after`` so many bytes of a connection were answered truly."""

    def __init__(self, port: int, mangle: Mangle, after: int, seed: int) -> None:
        self._upstream = port
        self._mangle = mangle
        self._after = after
        self._draw = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._upstream))
                self._open += [client, server]
                threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
        _close(server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        true = self._after
        with suppress(OSError):
            while data := server.recv(65536):
                good, rest = data[:true], data[true:]
                true -= len(good)
                client.sendall(good)
                if rest:
                    wrong = self._mangle(self._draw, rest)
                    if wrong is None:
                        break
                    client.sendall(wrong)
        _close(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for one in (self._listener, *self._open):
            _close(one)
            one.close()


def _close(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
