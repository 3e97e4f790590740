"""The way to a cluster: one endpoint at a time, the next one in turn when it fails, everything within a time-out.

After any failure the connection is made anew, so that neither gRPC's pauses between its attempts nor a connection that
is dead and silent can outlast the time there is. Every request may be sent again: each names the lease it is about.
"""

from __future__ import annotations

import math
import os
import random
import threading
from typing import TYPE_CHECKING

from .base import DistlockError, Unavailable
from .etcd_driver import CallFailed, Member, Message, Stream, pb
from .etcd_errors import (
    LeaseExists,
    LeaseNotFound,
    is_endpoints_fault,
    is_expired_login,
    is_login_needless,
    is_timeout,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .etcd_url import Server

LONGEST_TTL = 9_000_000_000
"""Seconds; etcd grants no more."""


def new_lease_id() -> int:
    """Ours and not the server's: a request whose answer was lost can be sent again, or be taken back."""
    return random.SystemRandom().randrange(1, 1 << 63)


class Watch:
    """Tells of one key. ``descriptor`` is readable when there is something to look at: what was asked for happened, or
    the watch ended and somebody has to ask. A thread reads the answers; it touches nothing but this."""

    def __init__(self, call: Stream) -> None:
        self._call = call
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._closed = False
        self.told = False
        """It has happened, most likely."""
        self.ended = False
        threading.Thread(target=self._run, name="etcd watch", daemon=True).start()

    def _run(self) -> None:
        try:
            created = pb.WatchResponse.FromString(next(self._call))
            if created.canceled:
                return
            for _ in self._call:  # whatever it is, somebody has to look
                self.told = True
                self._tell()
        except (CallFailed, StopIteration):
            pass  # the next request tells why
        finally:
            self.ended = True
            self._tell()

    def _tell(self) -> None:
        with self._lock:  # a descriptor that was closed may be somebody else's by now
            if not self._closed:
                os.eventfd_write(self.descriptor, 1)

    @property
    def is_spent(self) -> bool:
        return self.told or self.ended

    def drain(self) -> None:
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            pass

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._call.cancel()
        os.close(self.descriptor)


class Link:
    """Connects when first asked. Used by one thread. ``until`` is always the instant by which an answer or an error is
    there."""

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self._server = server
        self._clock = clock
        # So that not all of a fleet ask the same member.
        start = random.randrange(len(server.endpoints))
        self._endpoints = [*server.endpoints[start:], *server.endpoints[:start]]
        self._member: Member | None = None
        self._tried = False  # whether anything was asked over this connection
        self._token: str | None = None if server.user else ""

    # -- requests ----------------------------------------------------------------------------------------------------

    def ask(self, name: str, request: Message | bytes, until: float) -> Message:
        """Each endpoint once, and the first one anew if its connection was not; each gets half of the time that is
        left, the last one all of it. Raises Unavailable, Refused, ConfigurationError."""
        tries = len(self._endpoints) + (self._member is not None)
        for left in range(tries, 0, -1):
            now = self._clock()
            member = self._connected()
            try:
                return self._ask(member, name, request, now + (until - now) / min(left, 2))
            except CallFailed as error:
                problem = translated(error, member.endpoint)
                fault = is_endpoints_fault(error)
                if fault:
                    self._give_up_on(error)
                if not fault or left == 1 or self._clock() >= until:
                    raise self._of_all(problem, fault) from error
        raise AssertionError("no endpoint")

    def ask_each(self, name: str, request: Message, until: float) -> list[tuple[str, Message | DistlockError]]:
        """Every endpoint, over a connection of its own, and what it answers. Raises ConfigurationError."""
        answers: list[tuple[str, Message | DistlockError]] = []
        for left, endpoint in zip(range(len(self._endpoints), 0, -1), self._server.endpoints, strict=True):
            member, now = Member(self._server, endpoint), self._clock()
            try:
                answers.append((endpoint, self._ask(member, name, request, now + (until - now) / left)))
            except CallFailed as error:
                answers.append((endpoint, translated(error, endpoint)))
            finally:
                member.close()
        return answers

    def make_lease(self, lease: int, ttl: float, until: float) -> float:
        """The TTL that the server has given, which may be another one; whole seconds. Raises as ``ask`` does."""
        try:
            asked = pb.LeaseGrantRequest(TTL=min(math.ceil(ttl), LONGEST_TTL), ID=lease)
            return float(self.ask("LeaseGrant", asked, until).TTL)
        except LeaseExists:
            return float(self.ask("LeaseKeepAlive", pb.LeaseKeepAliveRequest(ID=lease), until).TTL)

    def revoke(self, lease: int, until: float) -> None:
        """And with it the keys under it. Nothing to do if the server does not know it any more."""
        try:
            self.ask("LeaseRevoke", pb.LeaseRevokeRequest(ID=lease), until)
        except LeaseNotFound:
            pass

    def ask_again(self, name: str, request: Message | bytes, until: float) -> Message:
        """The member that answered last, and no other one. Raises as ``ask`` does."""
        member = self._connected()
        try:
            return self._ask(member, name, request, until)
        except CallFailed as error:
            if is_endpoints_fault(error):
                self._give_up_on(error)
            raise translated(error, member.endpoint) from error

    def _of_all(self, problem: DistlockError, fault: bool) -> DistlockError:
        if fault and len(self._endpoints) > 1 and type(problem) is Unavailable:
            return Unavailable(f"none of {len(self._endpoints)} endpoints serves us: {problem}")
        return problem

    def _ask(self, member: Member, name: str, request: Message | bytes, until: float) -> Message:
        again = self._token is not None and bool(self._server.user)
        try:
            answer = member.call(name, request, self._left(until), self._login(member, until))
        except CallFailed as error:
            if not again or not is_expired_login(error):
                raise
            self._token = None
            answer = member.call(name, request, self._left(until), self._login(member, until))
        self._tried = True
        return answer

    def _login(self, member: Member, until: float) -> str:
        if self._token is None:
            asked = pb.AuthenticateRequest(name=self._server.user, password=self._server.password)
            try:
                self._token = str(member.call("Authenticate", asked, self._left(until), "").token)
            except CallFailed as error:
                if not is_login_needless(error):
                    raise
                self._token = ""  # as etcdctl does: a server without users takes everybody
        return self._token

    def _left(self, until: float) -> float:
        return max(0.001, until - self._clock())

    # -- the connection ----------------------------------------------------------------------------------------------

    def watch(self, request: Message) -> Watch:
        """Raises ConfigurationError."""
        return Watch(self._connected().watch(request, self._token or ""))

    def close(self) -> None:
        """Ends watches too."""
        member, self._member = self._member, None
        if member is not None:
            member.close()

    def _connected(self) -> Member:
        if self._member is None:
            self._member, self._tried = Member(self._server, self._endpoints[0]), False
        return self._member

    def _give_up_on(self, error: CallFailed) -> None:
        """Where there is no other endpoint, a new connection that is slow gets a second chance: one that is always cut
        short never comes to answer."""
        if is_timeout(error) and len(self._endpoints) == 1 and not self._tried:
            self._tried = True
        else:
            self._turn()

    def _turn(self) -> None:
        self.close()
        self._endpoints.append(self._endpoints.pop(0))
