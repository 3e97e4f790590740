"""Which node of a Redis Cluster has which slot, as far as known."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from redis.crc import key_slot


class Node(NamedTuple):
    host: str
    port: int


def slot_of(key: str) -> int:
    """Of a key or channel: of what is between the first { and the } behind it, if there is something."""
    found: int = key_slot(key.encode())
    return found


class Slots:
    def __init__(self) -> None:
        self._first: list[int] = []  # of each range, ascending
        self._ranges: list[tuple[int, Node]] = []  # last slot, master
        self._moved: dict[int, Node] = {}
        self.nodes: tuple[Node, ...] = ()
        """Every node ever heard of in the last map, replicas too: each can tell what has become of the others."""

    def learn(self, answer: list[list[Any]], asked: str) -> None:
        """What CLUSTER SLOTS says: [first, last, [host, port, …] of the master, of a replica, …] …. A node that does
        not know its own address gives none: it is the one that was asked."""
        ranges = []
        nodes: dict[Node, None] = {}
        for first, last, *members in answer:
            found = [Node(_host(member[0]) or asked, int(member[1])) for member in members]
            nodes.update(dict.fromkeys(found))
            ranges.append((int(first), int(last), found[0]))
        ranges.sort()
        self._first = [first for first, _, _ in ranges]
        self._ranges = [(last, master) for _, last, master in ranges]
        self._moved.clear()
        if nodes:
            self.nodes = tuple(nodes)

    def moved(self, slot: int, node: Node) -> None:
        self._moved[slot] = node

    def forget(self) -> None:
        """The map, but not the nodes."""
        self._first, self._ranges = [], []
        self._moved.clear()

    def master(self, slot: int) -> Node | None:
        if slot in self._moved:
            return self._moved[slot]
        place = bisect_right(self._first, slot) - 1
        if place < 0 or self._ranges[place][0] < slot:
            return None
        return self._ranges[place][1]

    def masters(self) -> list[Node]:
        return sorted({master for _, master in self._ranges})


def _host(told: bytes | None) -> str:
    """ "?" is what a node says that has no address yet by the name it is told to give."""
    host = (told or b"").decode()
    return "" if host == "?" else host
