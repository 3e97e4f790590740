"""One session of ZooKeeper, spoken over one connection at a time: requests in, answers and watch events out, everything
within a time-out.

kazoo brings the protocol: requests, answers, errors. Its client is not used. It pings from a thread of its own, so that
a lease nobody renews any more would live on; it reconnects unseen, so that nobody could say when the server's count was
started anew; it ends the session when it is closed; and it has no descriptor to wait on beside another one.

A session lives for its time-out after the last request that the leader heard of. Through a follower the leader hears
late: an answered request says nothing yet. Taking the session up again on a new connection is passed on to the leader,
which starts the count anew before it is answered (``open``). A leader that has lost its ensemble without noticing would
answer as well, so that only a write which was answered afterwards makes it certain: a quorum has carried it out.
"""

from __future__ import annotations

import math
import random
import select
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import kazoo.exceptions as its
from kazoo.protocol.serialization import Auth, Close, Connect, ReplyHeader, Watch, int_struct

from .base import Unavailable
from .zookeeper_errors import FAILURES, Expired, NotZooKeeper, translated
from .zookeeper_wire import ANSWERS, Answer, answer_to, framed, packed, parsed

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .zookeeper_connect import Servers

_EVENT, _PONG, _AUTH = -1, -2, -4
_ENDED = 2  # of a watch event's types
_LARGEST = 64 << 20
_REST = 1.0
"""Seconds for the rest of something of which a part is there."""


class Identity(NamedTuple):
    """By it a session is taken up again, also by another process."""

    number: int
    password: bytes

    def __repr__(self) -> str:
        return f"<session {self.number:#x}>"


NOBODY = Identity(0, bytes(16))


class Session:
    """``until`` is always the instant by which an answer or an error is there. Everything raises Expired when the
    session has ended, and Unavailable, Refused, ConfigurationError; after any of them there is no connection."""

    def __init__(self, servers: Servers, clock: Callable[[], float], identity: Identity = NOBODY) -> None:
        self._servers = servers
        self._clock = clock
        self.identity = identity
        self.timeout = 0.0
        """What the server granted, in seconds."""
        self.opened_at = 0.0
        """Just before the session was last asked for: the leader's count was started after that."""
        self.events = False
        """Whether a watch has told anything since the connection was made,"""
        self.ended: set[str] = set()
        """and the paths of nodes whose end it was."""
        self._socket: socket.socket | None = None
        self._address = servers.ensemble.address
        self._bytes = bytearray()
        self._unanswered: deque[tuple[int, Any, list[Answer] | None]] = deque()
        self._told_of = -1.0
        self._request = random.randrange(1 << 30)  # not what another process in this session counts from
        self._seen = 0  # the last change that we know of: a server that knows less will not have us

    # -- the session -------------------------------------------------------------------------------------------------

    def open(self, timeout: float, until: float) -> None:
        """On a new connection: a new session, or this one once more."""
        self.drop()

        def use(connected: socket.socket, share: float) -> None:
            self.drop()
            self._socket = connected
            self._shake_hands(timeout, share)

        try:
            self._address = self._servers.first(until, use).address
        except BaseException:
            self.drop()
            raise

    def _shake_hands(self, timeout: float, until: float) -> None:
        number, password = self.identity
        asked = Connect(0, self._seen, math.ceil(timeout * 1000), number, password, False)
        opened_at = self._clock()
        self._send(framed(bytes(asked.serialize())), until)
        granted, _ = parsed(Connect, self._frame(until))
        if granted.time_out <= 0:
            raise Expired
        self.identity = Identity(granted.session_id, granted.passwd)
        # What we asked for, if it only was rounded up to milliseconds.
        self.timeout = timeout if granted.time_out == asked.time_out else granted.time_out / 1000
        self.opened_at = opened_at
        ensemble = self._servers.ensemble
        if ensemble.user is not None:
            login = Auth(0, "digest", f"{ensemble.user}:{ensemble.password or ''}")
            self._send(packed(_AUTH, login), until)
            header, _ = self._message(until)
            if header.xid != _AUTH or header.err:
                raise its.AuthFailedError

    def close(self, until: float) -> None:
        """End the session, and with it its nodes, in one step. Asked again if the connection was dropped meanwhile."""
        if self.identity == NOBODY:
            self.drop()
            return
        try:
            try:
                if self.connected:
                    self.ask(until, Close())
                    return
            except Unavailable:
                pass
            self.open(self.timeout or 1.0, until)
            self.ask(until, Close())
        except Expired:
            pass
        finally:
            self.drop()

    def drop(self) -> None:
        """The connection. The session stays."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._bytes.clear()
        self._unanswered.clear()
        self.forget_events()

    def forget_events(self) -> None:
        self.events = False
        self.ended.clear()

    @property
    def connected(self) -> bool:
        return self._socket is not None

    # -- requests ----------------------------------------------------------------------------------------------------

    def ask(self, until: float, *requests: Any) -> list[Answer]:
        """All in one go: the answers in order."""
        answers: list[Answer] = []
        self._post(until, requests, answers)
        try:
            while len(answers) < len(requests):
                self._take(until)
        except FAILURES as error:
            self.drop()
            raise translated(error, self._address) from error
        for answer in answers:
            if isinstance(answer, its.SessionExpiredError):
                self.drop()
                raise Expired from answer
            if isinstance(answer, Exception) and not isinstance(answer, ANSWERS):
                self.drop()
                raise translated(answer, self._address) from answer
        return answers

    def tell(self, until: float, *requests: Any) -> None:
        """Nobody waits for the answers, or looks at them."""
        self._post(until, requests, None)

    def _post(self, until: float, requests: tuple[Any, ...], answers: list[Answer] | None) -> None:
        message = b""
        for request in requests:
            self._request = self._request % 0x7FFFFFFF + 1
            self._unanswered.append((self._request, request, answers))
            message += packed(self._request, request)
        try:
            self._send(message, until)
        except FAILURES as error:
            self.drop()
            raise translated(error, self._address) from error

    # -- what comes unasked ------------------------------------------------------------------------------------------

    def news(self) -> bool:
        """Whether there has been an event, or the connection has dropped: of each one that is said once."""
        if self._unanswered:
            self.drain()  # answers that nobody waits for are no news
        dropped = self._socket is None and self._told_of != self.opened_at
        if dropped:
            self._told_of = self.opened_at
        return dropped or self.events

    @property
    def descriptor(self) -> int | None:
        """Becomes readable with news, if nothing else is expected on it."""
        return None if self._socket is None or self._unanswered else self._socket.fileno()

    def drain(self) -> None:
        """Take what has come, without waiting for more."""
        try:
            while self._socket is not None and self._readable(self._socket):
                self._take(self._clock() + _REST)
        except FAILURES:
            self.drop()  # the next request connects anew, or tells why it cannot

    def wait(self, timeout: float, cancel: int) -> None:
        """Until there are events, the connection dropped, or ``cancel`` is readable."""
        end = self._clock() + timeout
        if self._socket is None:
            return
        look = select.poll()
        look.register(cancel, select.POLLIN)
        look.register(self._socket, select.POLLIN)
        while True:
            self.drain()
            left = end - self._clock()
            if left <= 0 or self.events or self._socket is None:
                return
            if any(descriptor == cancel for descriptor, _ in look.poll(left * 1000)):
                return

    # -- the connection ----------------------------------------------------------------------------------------------

    def _readable(self, connected: socket.socket) -> bool:
        """What was read or decrypted already does not show on the socket."""
        decrypted = getattr(connected, "pending", None)  # of TLS
        if len(self._bytes) >= 4 or (decrypted is not None and decrypted()):
            return True
        look = select.poll()
        look.register(connected, select.POLLIN)
        return bool(look.poll(0))

    def _take(self, until: float) -> None:
        header, body = self._message(until)
        if header.xid == _EVENT:
            event, _ = parsed(Watch, body)
            self.events = True
            if event.type == _ENDED:
                self.ended.add(event.path)
        elif header.xid != _PONG:
            if not self._unanswered or self._unanswered[0][0] != header.xid:
                # Another process has taken the session up at another server, and what it asked there is answered here.
                raise its.ConnectionLoss
            _, request, answers = self._unanswered.popleft()
            if answers is not None:
                answers.append(answer_to(request, header.err, body))

    def _message(self, until: float) -> tuple[Any, bytes]:
        frame = self._frame(until)
        header, offset = parsed(ReplyHeader, frame)
        self._seen = max(self._seen, header.zxid)
        return header, frame[offset:]

    def _frame(self, until: float) -> bytes:
        """What comes next, without its length in front."""
        while True:
            if len(self._bytes) >= 4:
                length = int_struct.unpack_from(self._bytes)[0]
                if not 0 <= length <= _LARGEST:
                    raise NotZooKeeper
                if len(self._bytes) >= 4 + length:
                    frame = bytes(self._bytes[4 : 4 + length])
                    del self._bytes[: 4 + length]
                    return frame
            assert self._socket is not None
            self._socket.settimeout(self._left(until))
            more = self._socket.recv(65536)
            if not more:
                raise EOFError
            self._bytes += more

    def _send(self, frames: bytes, until: float) -> None:
        if self._socket is None:
            raise EOFError
        self._socket.settimeout(self._left(until))
        self._socket.sendall(frames)

    def _left(self, until: float) -> float:
        left = until - self._clock()
        if left <= 0:
            raise TimeoutError
        return max(0.001, left)  # 0 would mean: do not block
