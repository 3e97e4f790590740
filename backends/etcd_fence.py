"""Fence registers in etcd: what the quorum has agreed to is remembered by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import etcd_record as stored
from . import etcd_requests as requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from .etcd_link import Link


def advance(link: Link, resource: str, index: int, token: int, again: Callable[[], float]) -> int:
    """``again`` gives the time there is for another try, or raises."""
    key = stored.fence(resource, index)
    revision, greatest = 0, -1  # a guess: there is no register yet
    while greatest < token:
        answer = link.ask("Txn", requests.replace(key, revision, stored.encode_token(token), 0), again())
        if answer.succeeded:
            return token
        revision, greatest = 0, -1
        for found in answer.responses[0].response_range.kvs:
            revision = found.mod_revision
            greatest = stored.register(found.key, found.value)
    return greatest


def reset(link: Link, resource: str, index: int, until: float) -> None:
    answer = link.ask("Txn", requests.remove_known(stored.fence(resource, index)), until)
    if not answer.succeeded:
        for found in answer.responses[0].response_range.kvs:
            stored.register(found.key, found.value)
