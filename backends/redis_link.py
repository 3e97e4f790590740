"""One connection to one Redis: scripts in, answers and wake-ups out, everything within a time-out.

redis-py brings login, TLS and the protocol. Its client and pool are not used: they retry by themselves, and they have
no descriptor to wait on beside another one. RESP3 lets subscriptions and commands share the connection: a
wake-up is a push between answers, and subscribing costs no time of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import redis.exceptions as its

from .redis_connect import Connection, connected
from .redis_errors import Answered, is_drop, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .redis_script import Call
    from .redis_url import Server

Answer = Any  # what a script returns: bytes, or a list of bytes and integers
_REST = 1.0
"""Seconds for the rest of a push of which a part is there."""
_IN_ORDER = ("TRYAGAIN", "CLUSTERDOWN")
"""Answers after which the connection is as good as before: nothing is on its way, and subscriptions stay."""


class Link:
    """Connects when first asked, and anew when the connection has gone. ``until`` is always the instant by which an
    answer or an error is there; only the resolution of a host name is beyond that, the system has limits of its own.
    It is a ``Reach`` (redis_reach.py), for who has one server. ``resend``: what a dropped connection left unanswered is
    sent once more, on a new one; otherwise the drop is told, for who has to ask somebody else then. ``master``: a
    server that is none, or any more, is Unavailable when connecting."""

    def __init__(
        self, server: Server, clock: Callable[[], float], *, resend: bool = True, master: bool = False
    ) -> None:
        self._server = server
        self._clock = clock
        self._resend = resend
        self._master = master
        self._until = 0.0
        self._connection: Connection = None
        self._subscribed: set[str] = set()
        self._woken: set[str] = set()
        self._told: set[str] = set()  # scripts
        self._server_ahead: float | None = None  # µs of the server's wall clock at zero of ours, at most
        self.sent_at = 0.0
        """Just before the last request that was answered was sent."""

    @property
    def address(self) -> str:
        return self._server.address

    # -- requests ----------------------------------------------------------------------------------------------------

    def connect(self, key: str, until: float) -> None:
        """After this nothing has been asked for yet; one server has every ``key``. Raises Unavailable, Refused,
        ConfigurationError."""
        self._until = until
        try:
            self._connected()
        except its.RedisError as error:
            raise translated(error, self.address) from error

    def ask(self, call: Call, until: float, channel: str | None = None, *, asking: bool = False) -> Answer:
        """Run one script, which may happen twice; ``channel`` is subscribed to before. ``asking`` tells a node of a
        cluster that another one sent us. Raises Unavailable, Refused, ConfigurationError."""
        self._until = until
        try:
            reused = self._connection is not None and self._resend
            try:
                return self._ask(call, channel, asking=asking)
            except its.ConnectionError as error:
                if not reused or not is_drop(error):
                    raise
            return self._ask(call, channel, asking=asking)
        except its.RedisError as error:
            problem = translated(error, self.address)
            if not (isinstance(problem, Answered) and problem.code in _IN_ORDER):
                self.close()
            raise problem from error

    def _ask(self, call: Call, channel: str | None, *, asking: bool) -> Answer:
        self._connected()
        # By its text when new to this connection: a server that does not know it would cost a second round trip, and
        # the first renewal has no time for that when answers are slow.
        subscribe = [("SUBSCRIBE", channel)] if channel is not None and channel not in self._subscribed else []
        try:
            answer = self._run(subscribe, call, asking=asking, by_text=call.script.sha not in self._told)
        except its.NoScriptError:
            answer = self._run([], call, asking=asking, by_text=True)
        self._told.add(call.script.sha)
        if channel is not None:
            self._subscribed.add(channel)
        return answer

    def _run(self, before: list[tuple[str, str]], call: Call, *, asking: bool, by_text: bool) -> Answer:
        first: list[tuple[str]] = [("ASKING",)] if asking else []
        self.sent_at = self._clock()
        self._send([*before, *first, call.words(self._server_time_at, by_text=by_text)])
        for _ in first:
            self._receive()
        return self._receive()

    def ask_all(self, calls: Sequence[Call], timeout: float) -> list[Answer]:
        """Several of the same script at once, for such as only read."""
        if not calls:
            return []
        answers = [self.ask(calls[0], self._clock() + timeout)]  # so that the server knows the script
        rest = [call.words(self._server_time_at, by_text=False) for call in calls[1:]]
        return [*answers, *self._exchange(rest, self._clock() + timeout)]

    def scan(self, pattern: str, count: int, timeout: float) -> Iterator[bytes]:
        """Keys, some of them more than once; ``timeout`` is for each of the requests."""
        cursor = b"0"
        while True:
            command = ("SCAN", cursor, "MATCH", pattern, "COUNT", str(count))
            cursor, keys = self._exchange([command], self._clock() + timeout)[0]
            yield from keys
            if cursor == b"0":
                return

    def tell(self, until: float, *words: str) -> Answer:
        """One command that is no script. Raises Unavailable, Refused, ConfigurationError."""
        return self._exchange([words], until)[0]

    def _exchange(self, commands: Sequence[tuple[str | bytes, ...]], until: float) -> list[Answer]:
        self._until = until
        try:
            self._connected()
            self._send(commands)
            return [self._receive() for _ in commands]
        except its.RedisError as error:
            self.close()
            raise translated(error, self.address) from error

    def masters(self, until: float) -> Sequence[Link]:
        del until
        return [self]

    # -- the server's clock ------------------------------------------------------------------------------------------

    def heard(self, server_time: int) -> None:
        """What its clock said in the answer that has just come, in µs."""
        self._server_ahead = server_time - self._clock() * 1e6

    def _server_time_at(self, instant: float) -> str:
        """What it says then or a little later, in µs; "0" as long as nothing is known."""
        return "0" if self._server_ahead is None else str(int(self._server_ahead + instant * 1e6))

    # -- wake-ups ----------------------------------------------------------------------------------------------------

    def listening(self, channel: str) -> Link | None:
        return self if channel in self._subscribed else None

    @property
    def descriptor(self) -> int | None:
        """Readable when something came or the connection dropped; None without a connection."""
        if self._connection is None or not self._connection.is_connected:
            return None
        found: int = self._connection._sock.fileno()
        return found

    def hear(self, channel: str) -> bool:
        """Whether something came on the channel, now or since it was last asked, or there is no connection any more.
        Reads what is there: what came with an answer, or is decrypted already, does not show on the descriptor."""
        try:
            while channel not in self._woken:
                if self.descriptor is None:
                    return True
                if not self._connection.can_read(0):
                    return False
                self._until = self._clock() + _REST
                self._arm()
                self._connection.read_response(push_request=True)
        except its.RedisError:
            self.close()  # the next poll connects anew, or tells why it cannot
            return True
        self._woken.discard(channel)
        return True

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

    def _connected(self) -> None:
        if self._connection is None or not self._connection.is_connected:
            self.close()
            self._connection = connected(self._server, self._left, self._pushed)
            if self._master:
                self._send([("ROLE",)])
                if self._receive()[0] != b"master":
                    self.close()
                    raise its.ReadOnlyError("by its ROLE", status_code="READONLY")

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
        self._connection.send_packed_command(self._connection.pack_commands(commands))

    def _receive(self) -> Answer:
        self._arm()
        return self._connection.read_response()
