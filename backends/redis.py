"""Locks on one Redis or Valkey: ``redis://``, ``rediss://``, ``redis+unix://``.

The lock is the key ``lock:NAME`` as ``SET NX PX`` makes it, so any client that uses this recipe excludes us and is
excluded. What goes beyond it (queue, token, who it is) lies beside it in keys of the same hash slot, and each step is
one script. Exclusive as long as the server keeps its data: a failover to a replica that lags, or a restart that
forgets, can grant a lock twice. Hence the class efficiency.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Self

from .base import (
    SUCCESS,
    Backend,
    DistlockError,
    Grant,
    LeaseLost,
    LockState,
    Mark,
    Marked,
    Refused,
    Revoked,
    Safety,
    Unavailable,
    Unmarked,
)
from .redis_link import Call, Link, script
from .redis_record import state
from .redis_ticket import RedisTicket
from .redis_url import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .base import Environment, Request
    from .redis_url import Server

_PREFIX = "distlock:{lock:"
_SCAN = 2000
"""Keys looked at in one request: some 1 ms of the server's time, during which nobody else is served."""
_BATCH = 200


class RedisBackend(Backend):
    safety: ClassVar[Safety] = "efficiency"
    exclusive_until: ClassVar[str] = (
        "the lease ends by the server's clock, as long as the server keeps its data: a failover, a restart without the"
        " data, an eviction or FLUSHALL can grant twice"
    )
    token_scope: ClassVar[str] = (
        "the server, also emptied or restarted without its data unless its clock was set back; a failover can grant"
        " a lock twice, the later grant with the greater token if the clocks of the servers agree"
    )
    fifo: ClassVar[bool] = True
    keeps: ClassVar[bool] = True

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self.address = server.address
        self.clock = clock
        self.link = Link(server, clock)
        self._server_ahead: float | None = None  # µs of the server's wall clock at zero of ours, at most

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        server = parse(url)
        if server.password is None:
            server = server._replace(password=environment.password)
        return cls(server, environment.clock)

    @staticmethod
    def keys(name: str) -> tuple[str, ...]:
        beside = f"{_PREFIX}{name}}}"
        return (
            f"lock:{name}",
            *(f"{beside}:{part}" for part in ("token", "holder", "queue", "waiters", "marks", "revoked")),
        )

    @staticmethod
    def channels(name: str) -> str:
        """What the channels of a lock's waiters begin with; the owner id follows."""
        return f"{_PREFIX}{name}}}:wake:"

    @staticmethod
    def milliseconds(seconds: float) -> str:
        return str(math.ceil(seconds * 1000))

    def heard(self, server_time: int) -> None:
        self._server_ahead = server_time - self.clock() * 1e6

    def server_time_at(self, instant: float) -> str:
        """What the server's clock says then or a little later, in µs; "0" as long as nothing is known."""
        return "0" if self._server_ahead is None else str(int(self._server_ahead + instant * 1e6))

    def unknown_layout(self, name: str, record: bytes) -> Unavailable:
        message = (
            f"{self.address}: the token of the lock {name!r} is {record.decode(errors='backslashreplace')[:40]!r}, "
            "written in a layout that this program does not know"
        )
        return Unavailable(message, permanent=True)

    def enqueue(self, request: Request) -> RedisTicket:
        return RedisTicket(self, request)

    def renew(self, grant: Grant, timeout: float) -> Grant:
        call = Call(script("renew"), self.keys(grant.name), (grant.owner, self.milliseconds(grant.ttl)))
        answer = self.link.ask(call, self.clock() + timeout)
        if isinstance(answer, list):
            raise Revoked(f"an operator released it: {answer[1].decode(errors='backslashreplace')}")
        if answer == b"gone":
            raise LeaseLost("it ran out before it was renewed, or its key was removed")
        if answer != b"renewed":
            raise LeaseLost("it went to somebody else")
        return grant._replace(valid_from=self.link.sent_at)

    def alarm(self, grant: Grant) -> int | None:
        return None

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        self.leave(grant.name, grant.owner, timeout, marks, keep_for)

    def leave(self, name: str, owner: str, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        words = [word for mark in marks for word in self._words(mark)]
        arguments = (owner, self.channels(name), self.milliseconds(keep_for), *words)
        answer = self.link.ask(Call(script("leave"), self.keys(name), arguments), self.clock() + timeout)
        if isinstance(answer, list) and any(mark.slot != SUCCESS for mark in marks):
            raise Unmarked(f"{self.address}: {answer[1].decode(errors='backslashreplace')}")

    def _words(self, mark: Mark) -> tuple[str, str, str]:
        return mark.slot, str(int(mark.ago * 1e6)), self.milliseconds(mark.keep)

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        call = Call(script("mark"), self.keys(grant.name), (grant.owner, *self._words(mark)))
        answer = self.link.ask(call, self.clock() + timeout)
        if isinstance(answer, list):
            raise Unavailable(f"{self.address}: {answer[1].decode(errors='backslashreplace')}")
        if answer != b"marked":
            raise LeaseLost("it ran out, or went to somebody else")

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        found = self.link.ask(Call(script("marked"), self.keys(name), (slot,)), self.clock() + timeout)
        if not found:
            return None
        start, now = map(int, found)
        return Marked(start / 1e6, (now - start) / 1e6)

    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        arguments = ("" if token is None else str(token), owner or "", by, str(int(now)), self.channels(name))
        answer = self.link.ask(Call(script("revoke"), self.keys(name), arguments), self.clock() + timeout)
        if isinstance(answer, list):
            raise self.unknown_layout(name, answer[1])
        return bool(answer == b"revoked")

    def inspect(self, name: str, timeout: float) -> LockState:
        return self._state(name, self.link.ask(self._inspection(name), self.clock() + timeout))

    def _inspection(self, name: str) -> Call:
        return Call(script("inspect"), self.keys(name), (self.channels(name),))

    def _state(self, name: str, answer: list[bytes]) -> LockState:
        if answer[0] == b"layout":
            raise self.unknown_layout(name, answer[1])
        return state(name, list(answer))

    def locks(self, timeout: float) -> Iterator[LockState]:
        """Foreign ones too, as far as their keys are names. ``timeout`` is for each request. Looks at every key of
        the database once. A lock of an unknown layout does not hide the others: it is told behind the last."""
        problem: DistlockError | None = None
        seen: set[str] = set()
        batch: list[str] = []
        for key in self.link.scan("*lock:*", _SCAN, timeout):
            name = _name_in(key)
            if name is not None and name not in seen:
                seen.add(name)
                batch.append(name)
        names = sorted(batch)
        for start in range(0, len(names), _BATCH):
            some = names[start : start + _BATCH]
            for name, answer in zip(some, self.link.ask_all([*map(self._inspection, some)], timeout), strict=True):
                try:
                    found = self._state(name, answer)
                except Unavailable as error:
                    problem = problem or error
                    continue
                if found.held or found.waiters or found.token is not None:
                    yield found
        if problem is not None:
            raise problem

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        return ()  # for an efficiency lock any Redis will do

    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        raise Refused(f"{self.address}: Redis keeps no fence registers: it can forget what it has answered")

    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        self.advance_fence(resource, index, 0, timeout)

    def places(self, name: str) -> tuple[str, ...]:
        return self.keys(name)

    def close(self) -> None:
        self.link.close()


def _name_in(key: bytes) -> str | None:
    """The lock that a key belongs to."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    if text.startswith(_PREFIX):
        name, ours, _ = text.removeprefix(_PREFIX).partition("}:")
    else:
        _, ours, name = text.partition("lock:")
        ours = ours if text.startswith("lock:") else ""
    return name if ours and name and not set(name) & {"{", "}"} else None
