"""One connection to one Redis: scripts in, answers and wake-ups out, everything within a time-out.

redis-py brings login, TLS and the protocol. Its client and pool are not used: they retry by themselves, and they have
no descriptor to wait on beside another one. RESP3 lets subscriptions and commands share the connection: a
wake-up is a push between answers, and subscribing costs no time of its own.
"""

from __future__ import annotations

import hashlib
import select
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import redis.exceptions as its

from .redis_connect import Connection, connected
from .redis_errors import is_drop, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .redis_url import Server

Answer = Any  # what a script returns: bytes, or a list of bytes and integers
_REST = 1.0
"""Seconds for the rest of a push of which a part is there."""


class Script(NamedTuple):
    text: bytes
    sha: str


@cache
def script(name: str) -> Script:
    """``redis_NAME.lua`` behind what all of them share."""
    folder = Path(__file__).parent
    text = b"".join((folder / f"redis_{part}.lua").read_bytes() for part in ("common", name))
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


class Call(NamedTuple):
    script: Script
    keys: Sequence[str]
    arguments: Sequence[str | bytes]

    def by_sha(self) -> tuple[str | bytes, ...]:
        return ("EVALSHA", self.script.sha, str(len(self.keys)), *self.keys, *self.arguments)

    def by_text(self) -> tuple[str | bytes, ...]:
        return ("EVAL", self.script.text, str(len(self.keys)), *self.keys, *self.arguments)


class Link:
    """Connects when first asked, and anew when the connection has gone. ``until`` is always the instant by which an
    answer or an error is there; only the resolution of a host name is beyond that, the system has limits of its own."""

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self._server = server
        self._clock = clock
        self._until = 0.0
        self._connection: Connection = None
        self._subscribed: set[str] = set()
        self._woken: set[str] = set()
        self._told: set[str] = set()  # scripts
        self.sent_at = 0.0
        """Just before the last request that was answered was sent."""

    # -- requests ----------------------------------------------------------------------------------------------------

    def connect(self, until: float) -> None:
        """After this nothing has been asked for yet. Raises Unavailable, Refused, ConfigurationError."""
        self._until = until
        try:
            self._connected()
        except its.RedisError as error:
            raise translated(error, self._server.address) from error

    def ask(self, call: Call, until: float, channel: str | None = None) -> Answer:
        """Run one script; ``channel`` is subscribed to before. Sent again once if the connection turns out to have
        been dropped, which all our scripts allow. Raises Unavailable, Refused, ConfigurationError."""
        self._until = until
        try:
            reused = self._connection is not None
            try:
                return self._ask(call, channel)
            except its.ConnectionError as error:
                if not reused or not is_drop(error):
                    raise
            return self._ask(call, channel)
        except its.RedisError as error:
            self.close()
            raise translated(error, self._server.address) from error

    def _ask(self, call: Call, channel: str | None) -> Answer:
        connection = self._connected()
        # By its text when new to this connection: a server that does not know it would cost a second round trip, and
        # the first renewal has no time for that when answers are slow.
        commands = [call.by_sha() if call.script.sha in self._told else call.by_text()]
        if channel is not None and channel not in self._subscribed:
            commands.insert(0, ("SUBSCRIBE", channel))
        self.sent_at = self._clock()
        self._send(commands)
        try:
            answer = self._receive(connection)
        except its.NoScriptError:
            self.sent_at = self._clock()
            self._send([call.by_text()])
            answer = self._receive(connection)
        self._told.add(call.script.sha)
        if channel is not None:
            self._subscribed.add(channel)
        return answer

    def ask_all(self, calls: Sequence[Call], timeout: float) -> list[Answer]:
        """Several of the same script at once, for such as only read."""
        if not calls:
            return []
        answers = [self.ask(calls[0], self._clock() + timeout)]  # so that the server knows the script
        return [*answers, *self._exchange([call.by_sha() for call in calls[1:]], timeout)]

    def scan(self, pattern: str, count: int, timeout: float) -> Iterator[bytes]:
        """Keys, some of them more than once; ``timeout`` is for each of the requests."""
        cursor = b"0"
        while True:
            cursor, keys = self._exchange([("SCAN", cursor, "MATCH", pattern, "COUNT", str(count))], timeout)[0]
            yield from keys
            if cursor == b"0":
                return

    def _exchange(self, commands: Sequence[tuple[str | bytes, ...]], timeout: float) -> list[Answer]:
        self._until = self._clock() + timeout
        try:
            connection = self._connected()
            self._send(commands)
            return [self._receive(connection) for _ in commands]
        except its.RedisError as error:
            self.close()
            raise translated(error, self._server.address) from error

    # -- wake-ups ----------------------------------------------------------------------------------------------------

    def wait(self, channel: str, timeout: float, cancel: int) -> None:
        """Until something came on ``channel``, the connection dropped, or ``cancel`` is readable."""
        end = self._clock() + timeout
        connection = self._connection
        if connection is None or not connection.is_connected:
            return
        look = select.poll()
        look.register(cancel, select.POLLIN)
        look.register(connection._sock, select.POLLIN)
        try:
            while channel not in self._woken:
                # First: what was read together with an answer, or decrypted, does not show on the socket.
                while connection.can_read(0):
                    self._until = self._clock() + _REST
                    self._arm()
                    connection.read_response(push_request=True)
                    if channel in self._woken:
                        return
                left = end - self._clock()
                if left <= 0 or any(descriptor == cancel for descriptor, _ in look.poll(left * 1000)):
                    return
        except its.RedisError:
            self.close()  # the next poll connects anew, or tells why it cannot
        finally:
            self._woken.discard(channel)

    def unsubscribe(self, channel: str) -> None:
        """Does not wait for the answer. Never raises."""
        self._woken.discard(channel)
        if channel in self._subscribed:
            self._subscribed.discard(channel)
            self._until = self._clock() + 0.2
            try:
                self._send([("UNSUBSCRIBE", channel)])
            except its.RedisError:
                self.close()

    def _pushed(self, message: list[Any]) -> list[Any]:
        if message[0] == b"message":
            self._woken.add(message[1].decode())
        return message

    # -- the connection ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._subscribed.clear()
        self._told.clear()
        if connection is not None:
            connection.disconnect()

    def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_connected:
            self.close()
            self._connection = connected(self._server, self._left, self._pushed)
        return self._connection

    def _left(self) -> float:
        left = self._until - self._clock()
        if left <= 0:
            raise its.TimeoutError("no time left")
        return max(0.001, left)  # 0 would mean: do not block

    def _arm(self) -> None:
        if self._connection is None or not self._connection.is_connected:
            raise its.ConnectionError("Connection closed by server.")
        self._connection._sock.settimeout(self._left())

    def _send(self, commands: Sequence[tuple[str | bytes, ...]]) -> None:
        self._arm()
        assert self._connection is not None
        self._connection.send_packed_command(self._connection.pack_commands(commands))

    def _receive(self, connection: Connection) -> Answer:
        self._arm()
        return connection.read_response()
