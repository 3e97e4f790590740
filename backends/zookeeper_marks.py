"""Marks of a lock: a node each, below its folder. The servers stamp it with the time, by which its age is told. Only
the holder writes and removes them, each time in one step with a check that its own node is there: nobody's mark is
lost to somebody who was late."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import kazoo.exceptions as its
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Delete,
    Exists,
    GetChildren2,
    GetData,
    SetData,
    Transaction,
)

from .base import SUCCESS, Unavailable
from .client_record import UNREADABLE, as_json
from .zookeeper_errors import Expired
from .zookeeper_record import VERSION, encoded, told
from .zookeeper_wire import NotDone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .base import Mark
    from .zookeeper_session import Session
    from .zookeeper_states import Reader

MARKS = "marks"
_LOOKED_AT = 100
_TRIES = 5


def mark_path(folder: str, slot: str = SUCCESS) -> str:
    return f"{folder}/{MARKS}/{encoded(slot)}"


class Stored(NamedTuple):
    """A mark, by the servers' clock."""

    began: float
    until: float


def decode(answer: tuple[bytes | None, Any], where: str) -> Stored | None:
    """None for what no distlock has written. Raises Unavailable for a layout that this program does not know."""
    stored, stat = answer
    found = told(stored, where) or {}
    try:
        return Stored(stat.mtime / 1000 - float(found["ago"]), stat.mtime / 1000 + float(found["keep"]))
    except UNREADABLE:
        return None


def _encode(mark: Mark) -> bytes:
    return as_json({"version": VERSION, "ago": mark.ago, "keep": mark.keep}).encode()


class Writer:
    """Writes marks for the holder whose node is ``node`` in ``folder``."""

    def __init__(self, asked: Session | Reader, folder: str, node: str, acl: Any) -> None:
        self._asked = asked
        self._within = f"{folder}/{MARKS}"
        self._own = f"{folder}/{node}"
        self._acl = acl

    def write(
        self, marks: tuple[Mark, ...], until: float, *, leave: bool, connect: Callable[[float], None] | None
    ) -> bool:
        """In one step, and with ``leave`` our node is gone. Whether the connection had been dropped and was made anew.
        Raises Expired if our node was gone before: nothing is written; Unavailable, Refused."""
        try:
            self._write(marks, until, leave=leave)
        except Unavailable as error:
            if error.permanent or connect is None:
                raise
            connect(until)
            self._write(marks, until, leave=leave)  # a node that has ended does not end twice
            return True
        return False

    def _write(self, marks: tuple[Mark, ...], until: float, *, leave: bool) -> None:
        first = Delete(self._own, -1) if leave else CheckVersion(self._own, -1)
        by_node = {encoded(mark.slot): mark for mark in marks}
        for _ in range(_TRIES):
            children = self._asked.ask(until, GetChildren2(self._within, None))[0]
            present = set() if isinstance(children, Exception) else set(children[0])
            steps = [first]
            if marks and isinstance(children, Exception):
                steps.append(Create(self._within, b"", self._acl, 0))
            for node, mark in by_node.items():
                path, data = f"{self._within}/{node}", _encode(mark)
                steps.append(SetData(path, data, -1) if node in present else Create(path, data, self._acl, 0))
            steps.extend(self._forgotten(sorted(present - by_node.keys()) if marks else [], until))
            answer = self._asked.ask(until, Transaction(steps))[0]
            if not isinstance(answer, NotDone):
                return
            if answer.step == 0:
                raise Expired
        raise Unavailable(f"the marks in {self._within} come and go")

    def _forgotten(self, nodes: list[str], until: float) -> Iterator[Any]:
        """Steps that remove what need not be remembered. Looks at a bounded number, another one each time: they cannot
        grow without end, and a release does not take the longer the more there are."""
        if not nodes:
            return
        paths = [f"{self._within}/{node}" for node in random.sample(nodes, min(len(nodes), _LOOKED_AT))]
        own, *found = self._asked.ask(until, Exists(self._own, None), *(GetData(path, None) for path in paths))
        if isinstance(own, its.NoNodeError):
            raise Expired
        for path, answer in zip(paths, found, strict=True):
            # What we do not know stays: another version's.
            with suppress(Unavailable):
                mark = None if isinstance(answer, Exception) else decode(answer, path)
                # Our node was stamped with a time that the servers' clock is past by now.
                if mark and mark.until < own.mtime / 1000:
                    yield Delete(path, answer[1].version)
