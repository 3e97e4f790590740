"""What the supervisor and the renewer say to each other.

Two pipes (one socket, where the supervisor is a program that uses the library) carry the few messages of a run; end of
file on one means that its writer is dead. The deadline does not go
through a pipe: a supervisor that was stopped for an hour would find a full pipe and an old deadline in it. It lies in
a shared page, written by the renewer, read by the supervisor whenever it looks at the clock.
"""

import fcntl
import mmap
import os
import struct
from enum import IntEnum
from typing import NamedTuple

from ..backends.base import (
    Busy,
    ConfigurationError,
    DistlockError,
    LeaseLost,
    OtherHolders,
    Refused,
    Revoked,
    Unavailable,
    Unmarked,
)
from ..errors import InternalError, NestedRun, Skipped

_HEAD = struct.Struct("<HBqq")  # length of the text, kind, two numbers
_LONGEST_TEXT = 3500  # a whole message stays under PIPE_BUF (4096), so that writing it is atomic
LOWEST_DESCRIPTOR = 10  # never 0, 1 or 2, also when the caller closed those


class Kind(IntEnum):
    # renewer to supervisor
    GRANTED = (
        1  # and the child has been ordered to start; first: the token, or -1; second: the holder's index; text, to
    )
    #              a program that holds the lock: the TTL that was granted
    FAILED = 2  # first: the error's place in FAILURES; text: its message
    LOST = 3  # text: why
    NOTE = 4  # first: the verbosity from which it is said; text: the line
    TROUBLE = 5  # text: what went wrong with a renewal that will be tried again
    RELEASED = 6  # first: 1 released, 0 not; text: why not
    HELD = 9  # the lock is had, and something is left to do before the child can be started
    # supervisor to renewer
    RELEASE = 7  # nobody wants the lock any more, and nothing of a child is to be killed; first: the child's wait
    #              status, -1 if there was none; second: 1 if the lease was lost, then text: why
    STOPPED = 8  # the stop signal was sent to the tree


FAILURES: tuple[type[DistlockError], ...] = (
    InternalError,
    Busy,
    NestedRun,
    Unavailable,
    Refused,
    ConfigurationError,
    LeaseLost,
    Revoked,
    Unmarked,
    Skipped,
    OtherHolders,
)


class Message(NamedTuple):
    kind: Kind
    first: int = 0
    second: int = 0
    text: str = ""


def encode(message: Message) -> bytes:
    text = message.text.encode("utf-8", "backslashreplace")[:_LONGEST_TEXT]
    return _HEAD.pack(len(text), message.kind, message.first, message.second) + text


def failure(error: DistlockError) -> Message:
    """The message that makes the other end raise it."""
    place = next((FAILURES.index(kind) for kind in type(error).__mro__ if kind in FAILURES), 0)
    return Message(Kind.FAILED, place, text=str(error))


class Decoder:
    """Bytes as they come out of a pipe, in any pieces, to messages."""

    def __init__(self) -> None:
        self._bytes = b""

    def feed(self, data: bytes) -> list[Message]:
        self._bytes += data
        messages = []
        while len(self._bytes) >= _HEAD.size:
            length, kind, first, second = _HEAD.unpack_from(self._bytes)
            end = _HEAD.size + length
            if len(self._bytes) < end:
                break
            text = self._bytes[_HEAD.size : end].decode("utf-8", "replace")
            messages.append(Message(Kind(kind), first, second, text))
            self._bytes = self._bytes[end:]
        return messages


class Channel:
    """One end of the conversation. Neither sending nor receiving ever blocks."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self._writing = writing
        self._decoder = Decoder()
        self._put_back: list[Message] = []
        self.peer_is_gone = False
        os.set_blocking(reading, False)
        os.set_blocking(writing, False)

    def send(self, message: Message) -> None:
        """Give the message to the other end. It is dropped if the other end is dead or has not read 64 KiB of them;
        nothing of a lease depends on a message."""
        try:
            self._write(encode(message))
        except (ConnectionError, BlockingIOError):
            pass

    def _write(self, data: bytes) -> None:
        os.write(self._writing, data)

    def receive(self) -> list[Message]:
        """What has come. Sets ``peer_is_gone`` at end of file."""
        messages, self._put_back = self._put_back, []
        while not self.peer_is_gone:
            try:
                data = os.read(self.reading, 65536)
            except BlockingIOError:
                break
            except ConnectionResetError:  # a socket says so if the other end has died without reading all
                data = b""
            if not data:
                self.peer_is_gone = True
            messages += self._decoder.feed(data)
        return messages

    def put_back(self, messages: list[Message]) -> None:
        """What came with others and is for somebody who receives later."""
        self._put_back = messages

    @property
    def descriptors(self) -> tuple[int, int]:
        return self.reading, self._writing

    def close(self) -> None:
        os.close(self._writing)
        os.close(self.reading)


def pipe() -> tuple[int, int]:
    pair = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, LOWEST_DESCRIPTOR) for end in pair]
    for end in pair:
        os.close(end)
    return high[0], high[1]


def channels() -> tuple[Channel, Channel]:
    """Both ends; after the fork each process closes the one that is not its own."""
    there, back = pipe(), pipe()
    return Channel(back[0], there[1]), Channel(there[0], back[1])


class SharedDeadline:
    """The hard deadline (seconds of CLOCK_BOOTTIME) in a page that both processes see; minus infinity before a grant.

    One aligned double is stored and loaded as a whole on the 64-bit machines Linux runs on, so no lock is needed: a
    lock held by a stopped process would stop the other one.
    """

    def __init__(self, descriptor: int = -1) -> None:
        """On an open file for a process that is not forked; whoever makes the file calls ``set`` first."""
        self._cell = memoryview(mmap.mmap(descriptor, mmap.PAGESIZE)).cast("d")
        if descriptor < 0:
            self.set(float("-inf"))

    def set(self, instant: float) -> None:
        self._cell[0] = instant

    def get(self) -> float:
        return self._cell[0]
