"""Fence registers: a node for each resource and index, with the greatest token that it has seen. It is compared and set
by the node's version, and a token passes only by a write, which a quorum has agreed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kazoo.exceptions as its
from kazoo.protocol.serialization import Create2, GetData, SetData, Sync

from .zookeeper_folders import make
from .zookeeper_record import Paths, encode_token, last_token

if TYPE_CHECKING:
    from .zookeeper_states import Reader


class Fences:
    """Every loop ends by an answer, or with its time: each request raises Unavailable then."""

    def __init__(self, reader: Reader, paths: Paths, acl: Any) -> None:
        self._reader = reader
        self._paths = paths
        self._acl = acl

    def advance(self, resource: str, index: int, token: int, until: float) -> int:
        folder = self._paths.fence(resource)
        path = f"{folder}/{index}"
        while True:
            greatest, version = self._read(path, until)
            if greatest is not None and greatest > token:
                return greatest
            # An equal one is written too: what was read may have come from a server that does not know the latest.
            if self._write(folder, path, token, version, until):
                return token

    def reset(self, resource: str, index: int, until: float) -> None:
        """The node stays, or its versions would begin anew: one who had read it before could write a smaller token."""
        folder = self._paths.fence(resource)
        path = f"{folder}/{index}"
        while True:
            _, version = self._read(path, until)
            if version is None or self._write(folder, path, 0, version, until):
                return

    def _read(self, path: str, until: float) -> tuple[int | None, int | None]:
        """The token, and the node's version if there is one. Raises Unavailable for an unknown layout."""
        answer = self._reader.ask(until, Sync(path), GetData(path, None))[1]
        if isinstance(answer, Exception):
            return None, None
        return last_token(answer[0], path), answer[1].version

    def _write(self, folder: str, path: str, token: int, version: int | None, until: float) -> bool:
        """False if somebody was faster."""
        record = encode_token(token)
        if version is not None:
            return not isinstance(self._reader.ask(until, SetData(path, record, version))[0], Exception)
        made = self._reader.ask(until, Create2(path, record, self._acl, 0))[0]
        if isinstance(made, its.NoNodeError):
            make(lambda request: self._reader.ask(until, request)[0], folder, self._acl)
        return not isinstance(made, Exception)
