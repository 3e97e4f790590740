"""Locks on one Redis or Valkey: ``redis://``, ``rediss://``, ``redis+unix://``. What several servers add is in
redis_sentinel.py, redis_cluster.py and redlock.py.

The lock is the key ``lock:NAME`` as ``SET NX PX`` makes it, so any client that uses this recipe excludes us and is
excluded. What goes beyond it (queue, token, who it is) lies beside it in keys of the same hash slot, and each step is
one script. Exclusive as long as the server keeps its data: a failover to a replica that lags, or a restart that
forgets, can grant a lock twice. Hence the class efficiency.
"""

from __future__ import annotations

import json
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
from .redis_errors import Answered
from .redis_link import Link
from .redis_probe import look, named, probe_of
from .redis_record import revoked_by, state
from .redis_script import Call, script
from .redis_ticket import RedisTicket
from .redis_url import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .base import Environment, Request
    from .probe import Probe
    from .redis_link import Answer
    from .redis_reach import Reach

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

    def __init__(self, reach: Reach, clock: Callable[[], float]) -> None:
        self.reach = reach
        self.clock = clock

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        server = parse(url)
        if server.password is None:
            server = server._replace(password=environment.password)
        return cls(Link(server, environment.clock), environment.clock)

    @staticmethod
    def keys(name: str) -> tuple[str, ...]:
        beside = f"{_PREFIX}{name}}}"
        return (
            f"lock:{name}",
            *(f"{beside}:{part}" for part in ("token", "holder", "queue", "waiters", "marks")),
        )

    @classmethod
    def all_keys(cls, name: str) -> tuple[str, ...]:
        """Those of several holders, too. A plain lock does without them: while a cluster moves a slot, scripts are not
        served that name a key which is missing."""
        beside = f"{_PREFIX}{name}}}"
        return *cls.keys(name), f"{beside}:places", f"{beside}:holders"

    @staticmethod
    def channels(name: str) -> str:
        """What the channels of a lock's waiters begin with; the owner id follows."""
        return f"{_PREFIX}{name}}}:wake:"

    @staticmethod
    def milliseconds(seconds: float) -> str:
        return str(math.ceil(seconds * 1000))

    def unknown_layout(self, name: str, record: bytes) -> Unavailable:
        shown = record.decode(errors="backslashreplace")[:40]
        message = (
            f"{self.reach.address}: the token of the lock {name!r} is {shown!r}, "
            "written in a layout that this program does not know"
        )
        return Unavailable(message, permanent=True)

    def enqueue(self, request: Request) -> RedisTicket:
        return RedisTicket(self, request)

    def renew(self, grant: Grant, timeout: float) -> Grant:
        # Only keys that a lock which is held has.
        keys, words = self.all_keys(grant.name), (grant.owner, self.milliseconds(grant.ttl))
        if grant.holders > 1:
            call = Call(script("renew_several"), (*keys[:2], *keys[6:]), (*words, str(grant.holder_index)))
        else:
            call = Call(script("renew"), keys[:3], words)
        answer = self.reach.ask(call, self.clock() + timeout)
        if isinstance(answer, list):
            raise Revoked(f"an operator released it: {revoked_by(answer[1])}")
        if answer == b"gone":
            raise LeaseLost("it ran out before it was renewed, or its key was removed")
        if answer != b"renewed":
            raise LeaseLost("it went to somebody else")
        return grant._replace(valid_from=self.reach.sent_at)

    def alarm(self, grant: Grant) -> int | None:
        return None

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        self.leave(grant.name, grant.owner, grant.holders, timeout, marks, keep_for)

    def leave(
        self,
        name: str,
        owner: str,
        holders: int,
        timeout: float,
        marks: tuple[Mark, ...] = (),
        keep_for: float = 0.0,
    ) -> None:
        """Give up the lock or the place in the queue, whichever it is that the owner has."""
        words = [word for mark in marks for word in self._words(mark)]
        kept = self.milliseconds(keep_for) if keep_for else "0"
        arguments = (owner, self.channels(name), kept, *words)
        call = Call(script("leave"), self.keys(name), arguments)
        if holders > 1:
            call = Call(script("leave_several"), self.all_keys(name), arguments)
        answer = self.reach.ask(call, self.clock() + timeout)
        if isinstance(answer, list) and any(mark.slot != SUCCESS for mark in marks):
            raise Unmarked(f"{self.reach.address}: {answer[1].decode(errors='backslashreplace')}")

    def _words(self, mark: Mark) -> tuple[str, str, str]:
        return mark.slot, str(int(mark.ago * 1e6)), self.milliseconds(mark.keep)

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        keys = self.all_keys(grant.name) if grant.holders > 1 else self.keys(grant.name)
        call = Call(script("mark"), keys, (grant.owner, *self._words(mark)))
        answer = self.reach.ask(call, self.clock() + timeout)
        if isinstance(answer, list):
            raise Unavailable(f"{self.reach.address}: {answer[1].decode(errors='backslashreplace')}")
        if answer != b"marked":
            raise LeaseLost("it ran out, or went to somebody else")

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        found = self.reach.ask(Call(script("marked"), self.keys(name), (slot,)), self.clock() + timeout)
        if not found:
            return None
        start, now = map(int, found)
        return Marked(start / 1e6, (now - start) / 1e6)

    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        holder = ("" if token is None else str(token), owner or "")
        call = Call(
            script("revoke"), self.all_keys(name), (*holder, json.dumps(by), str(int(now)), self.channels(name))
        )
        answer = self.reach.ask(call, self.clock() + timeout)
        if isinstance(answer, list):
            raise self.unknown_layout(name, answer[1])
        return bool(answer == b"revoked")

    def inspect(self, name: str, timeout: float) -> LockState:
        return self._state(name, self.reach.ask(self._inspection(name), self.clock() + timeout))

    def _inspection(self, name: str) -> Call:
        return Call(script("inspect"), self.all_keys(name), (self.channels(name),))

    def _state(self, name: str, answer: list[bytes]) -> LockState:
        if answer[0] == b"layout":
            raise self.unknown_layout(name, answer[1])
        return state(name, list(answer))

    def locks(self, timeout: float) -> Iterator[LockState]:
        """Foreign ones too, as far as their keys are names. ``timeout`` is for each request. Looks at every key of
        the database once. A lock of an unknown layout, or a server of several that does not answer, does not hide the
        others: it is told behind the last."""
        problems: list[DistlockError] = []
        seen: set[str] = set()
        for link in self.reach.masters(self.clock() + timeout):
            try:
                names = sorted({name for name in map(_name_in, link.scan("*lock:*", _SCAN, timeout)) if name} - seen)
                seen.update(names)
                for start in range(0, len(names), _BATCH):
                    yield from self._listed(link, names[start : start + _BATCH], timeout, problems)
            except (Unavailable, Refused) as error:
                problems.append(error)
        if problems:
            raise problems[0]

    def _listed(
        self, link: Link, names: list[str], timeout: float, problems: list[DistlockError]
    ) -> Iterator[LockState]:
        calls = [*map(self._inspection, names)]
        answers: list[Answer]
        try:
            answers = link.ask_all(calls, timeout)
        except Answered:  # some of them have just moved
            answers = [self.reach.ask(call, self.clock() + timeout) for call in calls]
        for name, answer in zip(names, answers, strict=True):
            try:
                found = self._state(name, answer)
            except Unavailable as error:
                problems.append(error)
                continue
            if found.held or found.waiters or found.token is not None:
                yield found

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        return ()  # for an efficiency lock any Redis will do

    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        raise Refused(f"{self.reach.address}: Redis keeps no fence registers: it can forget what it has answered")

    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        self.advance_fence(resource, index, 0, timeout)

    def probe(self, timeout: float) -> Probe:
        until = self.clock() + timeout
        looked = [look(link, until) for link in self.reach.masters(until)]
        return probe_of(f"{named(looked)}, {looked[0].role}", looked)

    def purge(
        self, wanted: Callable[[str], bool], unused_for: float, timeout: float, *, fences: bool = False
    ) -> Iterator[str]:
        """One lock at a time, by the server's clock. A later token is at least the server's time then, and none that is
        ahead of that now is forgotten: so it is greater, unless the clock is set back after this. By the time of the
        last grant, which the token is; nothing tells when a lock was given back. The server is asked for a batch of
        keys and for each lock, and only the batch is in memory. Locks of an unknown layout stay."""
        if fences:
            return
        for name in self.recorded(timeout):
            if wanted(name) and self.forget(name, unused_for, timeout):
                yield name

    def recorded(self, timeout: float) -> Iterator[str]:
        """Names of locks that have a record; some more than once. ``timeout`` is for each request."""
        for link in self.reach.masters(self.clock() + timeout):
            yield from filter(None, map(_name_in, link.scan(f"{_PREFIX}*}}:token", _SCAN, timeout)))

    def forget(self, name: str, unused_for: float, timeout: float) -> bool:
        """If nobody needs it."""
        arguments = (str(int(unused_for * 1e6)), self.channels(name))
        call = Call(script("purge"), self.all_keys(name), arguments)
        return bool(self.reach.ask(call, self.clock() + timeout) == b"purged")

    def places(self, name: str) -> tuple[str, ...]:
        return self.all_keys(name)

    def close(self) -> None:
        self.reach.close()


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
