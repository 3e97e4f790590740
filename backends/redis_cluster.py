"""Locks on a Redis Cluster: ``redis+cluster://``, ``rediss+cluster://``.

The engine of redis.py, one master for each lock: all keys of a lock are in the slot of ``lock:NAME``, and so are the
channels of its waiters, who listen at the node that they ask. Channels are plain ones: a node tells its subscribers
apart from those of others (which is how a dead waiter is known), and what it publishes comes through at all of them,
so that a waiter is woken also where its slot was a moment ago.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from .base import Refused, Unavailable
from .probe import Finding
from .redis import RedisBackend
from .redis_errors import Answered
from .redis_group_probe import of_cluster
from .redis_link import Link
from .redis_probe import look, named, probe_of
from .redis_retry import Attempts
from .redis_slots import Node, Slots, slot_of
from .redis_url import at, parse_several
from .url_parts import wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .base import Environment
    from .probe import Probe
    from .redis_link import Answer
    from .redis_probe import Looked
    from .redis_script import Call
    from .redis_url import Server

_PORT = 6379
_NODE = 0.5
"""Seconds that one node gets for telling its map, before the next is asked."""


class ClusterLink:
    """A Reach: to the master of the slot that a key is in."""

    def __init__(self, seeds: Sequence[Server], clock: Callable[[], float]) -> None:
        self._seeds = seeds
        self._clock = clock
        self._links: dict[Node, Link] = {}
        self._slots = Slots()
        self._last: Link | None = None

    @property
    def address(self) -> str:
        return self._last.address if self._last else ",".join(server.address for server in self._seeds)

    @property
    def sent_at(self) -> float:
        return self._last.sent_at if self._last else 0.0

    # -- requests ----------------------------------------------------------------------------------------------------

    def connect(self, key: str, until: float) -> None:
        self._tried(slot_of(key), until, lambda link, limit, _: link.connect(key, limit))

    def ask(self, call: Call, until: float, channel: str | None = None) -> Answer:
        def ask(link: Link, limit: float, asking: bool) -> Answer:
            return link.ask(call, limit, channel, asking=asking)

        return self._tried(slot_of(call.keys[0]), until, ask)

    def _tried(self, slot: int, until: float, do: Callable[[Link, float, bool], Answer]) -> Answer:
        attempts = Attempts(self._clock, until)
        asked_to: Node | None = None  # by an ASK, which is for one request
        while True:
            limit = attempts.until()
            node: Node | None = None
            try:
                node = asked_to or self._master(slot, limit)
                self._last = self._link(node)
                return do(self._last, limit, asked_to is not None)
            except Answered as answer:
                asked_to = None
                if answer.node is None or node is None:
                    attempts.pause(answer)
                    if answer.code != "TRYAGAIN":  # which is over when the slot has moved
                        self._slots.forget()
                    continue
                named = Node(answer.node[0] or node.host, answer.node[1])
                if answer.code == "ASK":
                    asked_to = named
                else:
                    self._slots.moved(slot, named)
                attempts.redirected(answer)
            except Unavailable as error:
                asked_to = None
                self._slots.forget()
                attempts.pause(error)

    # -- who has what ------------------------------------------------------------------------------------------------

    def _master(self, slot: int, until: float) -> Node:
        """By the map, which is asked for when there is none."""
        node = self._slots.master(slot)
        if node is None:
            self._learn(until)
            node = self._slots.master(slot)
        if node is None:
            raise Unavailable(f"no node of the cluster at {self.address} has the lock's slot now")
        return node

    def _learn(self, until: float) -> None:
        """From the first node that tells, known ones before those of the URL. Raises Unavailable, Refused."""
        problem: Unavailable | Refused | None = None
        seeds = [Node(server.host, server.port) for server in self._seeds]
        for node in dict.fromkeys([*self._slots.nodes, *seeds]):
            try:
                answer = self._link(node).tell(min(until, self._clock() + _NODE), "CLUSTER", "SLOTS")
            except (Unavailable, Refused) as error:
                problem = problem or error
                continue
            self._slots.learn(answer, node.host)
            return
        assert problem is not None  # there is a seed
        raise problem

    def _link(self, node: Node) -> Link:
        if node not in self._links:
            self._links[node] = Link(at(self._seeds[0], *node), self._clock, resend=False)
        return self._links[node]

    def masters(self, until: float) -> Sequence[Link]:
        self._learn(until)
        return [self._link(node) for node in self._slots.masters()]

    # -- the rest ----------------------------------------------------------------------------------------------------

    def heard(self, server_time: int) -> None:
        if self._last is not None:
            self._last.heard(server_time)

    def listening(self, channel: str) -> Link | None:
        node = self._slots.master(slot_of(channel))
        return self._link(node).listening(channel) if node else None

    def unsubscribe(self, channel: str) -> None:
        for link in self._links.values():
            link.unsubscribe(channel)

    def close(self) -> None:
        for link in self._links.values():
            link.close()


class RedisClusterBackend(RedisBackend):
    exclusive_until: ClassVar[str] = (
        "the lease ends by the clock of the slot's master, as long as that keeps its data and stays the master:"
        " replication is asynchronous, so a failover can grant twice"
    )

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        """``…://[USER[:PASSWORD]@]HOST[:PORT],…``: some nodes, which tell of the others."""
        places = parse_several(url, _PORT)
        if places.path not in ("", "0"):
            raise wrong(url.partition(":")[0], "a cluster has no databases but 0")
        seeds = places.servers
        if seeds[0].password is None:
            seeds = tuple(server._replace(password=environment.password) for server in seeds)
        return cls(ClusterLink(seeds, environment.clock), environment.clock)

    def probe(self, timeout: float) -> Probe:
        until = self.clock() + timeout
        links = self.reach.masters(until)
        looked: list[Looked] = []
        down: list[Finding] = []
        for link in links:
            try:
                looked.append(look(link, min(until, self.clock() + _NODE)))
            except Unavailable as error:
                down.append(Finding("A master does not answer: its locks are not to be had.", str(error), "Start it."))
        if not looked:
            raise Unavailable(f"no master of the cluster at {self.reach.address} answers")
        server = f"{named(looked)}, cluster of {len(links)} masters"
        return probe_of(server, looked, [*down, *of_cluster(self._answering(links, looked), until)])

    @staticmethod
    def _answering(links: Sequence[Link], looked: Sequence[Looked]) -> Link:
        return next(link for link in links if link.address == looked[0].address)
