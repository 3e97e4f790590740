"""What a server tells of itself to ``srvr``, the one of its four-letter words that it answers unless told otherwise."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from .zookeeper_errors import FAILURES, translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from .zookeeper_connect import Servers
    from .zookeeper_url import Server

_LARGEST = 65536
_VERSION = re.compile(r"^Zookeeper version: (\d[\d.]*)", re.MULTILINE)
_MODE = re.compile(r"^Mode: (\S+)$", re.MULTILINE)


class Told(NamedTuple):
    address: str
    mode: str | None = None
    """leader, follower, observer, standalone, read-only; None if it does not say."""
    version: str | None = None
    trouble: str | None = None
    """Why it cannot be used, with its address."""


def told_by(servers: Servers, server: Server, until: float, clock: Callable[[], float]) -> Told:
    address = server.address
    try:
        text = _answer(servers, server, until, clock)
    except FAILURES as error:
        return Told(address, trouble=str(translated(error, address)))
    if "not currently serving" in text:
        return Told(address, trouble=f"{address} has no quorum")
    mode, version = _MODE.search(text), _VERSION.search(text)
    return Told(address, mode and mode[1], version and version[1])


def _answer(servers: Servers, server: Server, until: float, clock: Callable[[], float]) -> str:
    with closing(servers.connected(server, until)) as connected:
        connected.settimeout(max(0.001, until - clock()))
        connected.sendall(b"srvr")
        answer = b""
        while len(answer) < _LARGEST:
            left = until - clock()
            if left <= 0:
                raise TimeoutError
            connected.settimeout(left)
            try:
                more = connected.recv(_LARGEST)
            except TimeoutError:
                raise
            except OSError:
                break  # what it says when it is done may be no proper end
            if not more:
                break
            answer += more
    return answer.decode(errors="replace")
