"""Redlock, a lock at the majority of at least three independent Redis: ``redlock://``, ``redlocks://``.

At each server it is what redis.py keeps there, so a single server's clients and any other Redlock that uses the key
``lock:NAME`` exclude us and are excluded. A lease is valid as long as a majority keeps it; each of them keeps it for
longer than what is counted on, by an allowance for drift. There is no fencing token: no server sees every grant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

from .base import (
    Backend,
    DistlockError,
    Grant,
    LeaseLost,
    LockState,
    Mark,
    Marked,
    Refused,
    Request,
    Revoked,
    Safety,
    Unavailable,
    Unmarked,
)
from .redis_ticket import RedisTicket
from .redis_url import database, parse_several
from .redlock_nodes import Nodes
from .redlock_probe import probe
from .redlock_purge import purged
from .redlock_ticket import RedlockTicket
from .redlock_view import latest, merged
from .url_parts import wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .base import Environment
    from .probe import Probe
    from .redis_url import Server
    from .redlock_nodes import Replies

_PORT = 6379
_FIRST = b"0"
"""A place before all waiters: for who holds the lock already."""
_LISTING = 3600.0


class RedlockBackend(Backend):
    safety: ClassVar[Safety] = "efficiency"
    exclusive_until: ClassVar[str] = (
        "the lease ends by the clocks of a majority of the servers, as long as these keep their data: a restart"
        " without it, or a clock that is set, at one server can grant twice"
    )
    token_scope: ClassVar[str] = ""
    fifo: ClassVar[bool] = False
    keeps: ClassVar[bool] = True

    def __init__(self, servers: Sequence[Server], clock: Callable[[], float]) -> None:
        self.clock = clock
        self.nodes = Nodes(servers, clock)
        self._requests: dict[str, Request] = {}  # by owner

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        """``…://[USER[:PASSWORD]@]HOST[:PORT],HOST[:PORT],HOST[:PORT],…[/DB]``, one login for all."""
        scheme = url.partition(":")[0]
        places = parse_several(url, _PORT)
        if len(places.servers) < 3:
            raise wrong(scheme, "it takes three servers at least, or the failure of one would be that of the lock")
        password = environment.password if places.servers[0].password is None else places.servers[0].password
        db = database(scheme, places.path)
        return cls([server._replace(db=db, password=password) for server in places.servers], environment.clock)

    def enqueue(self, request: Request) -> RedlockTicket:
        return RedlockTicket(self, request)

    def granted(self, request: Request) -> None:
        self._requests[request.client.owner] = request

    def renew(self, grant: Grant, timeout: float) -> Grant:
        """At a majority. The others, if they have forgotten it or never had it, are given it again. One server that
        knows of an operator is enough to end it: a majority was told, of which some may have restarted since."""
        nodes = self.nodes

        def settled(replies: Replies[Grant]) -> bool:
            return len(replies.values) >= nodes.quorum or self._is_lost(replies) or _revoked(replies) is not None

        replies = nodes.ask(lambda number: nodes.all[number].backend.renew(grant, timeout), timeout, settled)
        if revoked := _revoked(replies):
            raise revoked
        if len(replies.values) >= nodes.quorum:
            for number, error in replies.errors.items():
                if isinstance(error, LeaseLost):
                    self.restore(number, grant)
            return grant._replace(valid_from=min(renewed.valid_from for renewed in replies.values.values()))
        if self._is_lost(replies):
            self._requests.pop(grant.owner, None)
            raise self._lost(replies)
        raise nodes.failure(replies.errors)

    def _lost(self, replies: Replies[Any]) -> LeaseLost:
        return LeaseLost(
            f"at most of its servers {next(one for one in replies.errors.values() if isinstance(one, LeaseLost))}"
        )

    def _is_lost(self, replies: Replies[Any]) -> bool:
        """So many say so that the others are no majority, whatever they say."""
        lost = sum(isinstance(error, LeaseLost) for error in replies.errors.values())
        return lost > len(self.nodes.all) - self.nodes.quorum

    def restore(self, number: int, grant: Grant) -> None:
        """Give a server the lease again that it has forgotten, or numbered in another way. Nobody else can get a
        majority while we have one. Who did not take the lock here cannot know what to tell of its holder, and leaves it
        at that."""
        request = self._requests.get(grant.owner)
        if request is None:
            return
        node = self.nodes.all[number]

        def take() -> None:
            ticket = RedisTicket(node.backend, request, _FIRST, grant.holder_index)
            try:
                ticket.poll()
            except DistlockError:
                pass
            ticket.close()  # somebody else's there: not worth waiting for

        node.do(take)

    def alarm(self, grant: Grant) -> int | None:
        return None

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        """At all. Those that do not answer keep it until its TTL ends, which is nobody's obstacle if they are few.
        Kept it is by those that a majority needs; the marks are at a majority, or it is Unmarked."""
        self._requests.pop(grant.owner, None)
        nodes = self.nodes

        def settled(replies: Replies[None]) -> bool:
            return len(replies.values) >= nodes.quorum or len(_unmarked(replies)) > len(nodes.all) - nodes.quorum

        replies = nodes.ask(
            lambda number: nodes.all[number].backend.release(grant, timeout, marks, keep_for),
            timeout,
            settled,
            queue=True,
        )
        if len(replies.values) >= nodes.quorum:
            return
        unmarked = _unmarked(replies)
        if len(replies.values) + len(unmarked) >= nodes.quorum:
            raise Unmarked(f"at most of its servers: {next(iter(unmarked.values()))}")
        raise nodes.failure({number: error for number, error in replies.errors.items() if number not in unmarked})

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        """At a majority."""
        nodes = self.nodes
        replies = nodes.ask(
            lambda number: nodes.all[number].backend.mark(grant, mark, timeout),
            timeout,
            lambda replies: len(replies.values) >= nodes.quorum or self._is_lost(replies),
        )
        if self._is_lost(replies):
            raise self._lost(replies)
        if len(replies.values) < nodes.quorum:
            raise nodes.failure(replies.errors)

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        """The latest that a majority knows of. A mark is at a majority when it is written, so each majority has a
        server that knows it. If a server forgets what it knew, by a restart without its data, that may have been the
        only one of them: the mark is missed then as long as those that still know it do not answer."""
        nodes = self.nodes
        replies = nodes.ask(
            lambda number: nodes.all[number].backend.marked(name, slot, timeout),
            timeout,
            lambda replies: len(replies.values) >= nodes.quorum,
        )
        if len(replies.values) < nodes.quorum:
            raise nodes.failure(replies.errors)
        return latest(replies.values.values())

    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        """By owner id alone: nobody has a token. A server that is cut off from the operator and keeps the lease is no
        majority, and the holder hears of it from any other."""
        if token is not None:
            return False
        nodes = self.nodes

        def known(replies: Replies[bool], answer: bool) -> int:
            return sum(one is answer for one in replies.values.values())

        def decided(replies: Replies[bool]) -> bool:
            return known(replies, True) >= nodes.quorum or known(replies, False) > len(nodes.all) - nodes.quorum

        replies = nodes.ask(
            lambda number: nodes.all[number].backend.revoke(name, None, owner, by, timeout, now=now), timeout, decided
        )
        if len(replies.values) < nodes.quorum:
            raise nodes.failure(replies.errors)
        if not decided(replies):
            silent = next(iter(replies.errors.values()))
            raise Unavailable(f"only a few of the servers that answer know the holder of {name!r}: {silent}")
        return known(replies, True) >= nodes.quorum

    def inspect(self, name: str, timeout: float) -> LockState:
        nodes = self.nodes
        replies = nodes.ask(
            lambda number: nodes.all[number].backend.inspect(name, timeout),
            timeout,
            lambda replies: len(replies.values) >= nodes.quorum,
        )
        if len(replies.values) < nodes.quorum:
            raise nodes.failure(replies.errors)
        return merged(name, [*replies.values.values()], nodes.quorum)

    def locks(self, timeout: float) -> Iterator[LockState]:
        """What a server cannot tell, the others do, if they are enough."""
        nodes = self.nodes

        def listed(number: int) -> dict[str, LockState]:
            return {state.name: state for state in nodes.all[number].backend.locks(timeout)}

        replies = nodes.ask(listed, _LISTING, lambda _: False)  # each of its requests has a time-out
        if len(replies.values) < nodes.quorum:
            raise nodes.failure(replies.errors)
        names = {name for states in replies.values.values() for name in states}
        for name in sorted(names):
            yield merged(name, [states[name] for states in replies.values.values() if name in states], nodes.quorum)

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        return ()  # for an efficiency lock any Redis will do

    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        raise Refused(f"{self.nodes.address}: a redlock keeps no fence registers: it can forget what it has answered")

    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        self.advance_fence(resource, index, 0, timeout)

    def probe(self, timeout: float) -> Probe:
        return probe(self.nodes, self.clock() + timeout, timeout)

    def purge(
        self, wanted: Callable[[str], bool], unused_for: float, timeout: float, *, fences: bool = False
    ) -> Iterator[str]:
        """At each server what it can spare, by its own clock; told when a majority has forgotten it. There are no
        tokens that could be given again."""
        return iter(()) if fences else purged(self.nodes, wanted, unused_for, timeout)

    def places(self, name: str) -> tuple[str, ...]:
        """The same keys at each server."""
        return tuple(
            f"{key} at {node.link.address}" for key in self.nodes.all[0].backend.places(name) for node in self.nodes.all
        )

    def close(self) -> None:
        self.nodes.close()


def _revoked(replies: Replies[Any]) -> Revoked | None:
    return next((error for error in replies.errors.values() if isinstance(error, Revoked)), None)


def _unmarked(replies: Replies[None]) -> dict[int, Unmarked]:
    """Those that were given it back all the same."""
    return {number: error for number, error in replies.errors.items() if isinstance(error, Unmarked)}
