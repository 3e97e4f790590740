"""What an operator does to a holder: takes its lease away."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import etcd_holder as holding
from . import etcd_record as stored
from . import etcd_requests as requests
from .base import Refused
from .etcd_errors import Full, LeaseNotFound
from .etcd_leave import AFTER_YOU, revoke_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from .etcd_driver import Message
    from .etcd_link import Link


class Target:
    """One holder: of this token, or without one of this owner id."""

    def __init__(self, link: Link, name: str, token: int | None, owner: str | None) -> None:
        self._link = link
        self._name = name
        self._token = token
        self._owner = owner

    def revoke(self, by: str, at_once: bool, again: Callable[[], float]) -> bool:
        """``again`` gives the time there is for another try, or raises. Raises Refused for a foreign holder, which
        would not be told."""
        found = self._find(again())
        if found is None:
            return False
        # From here on it is this holder's end, whatever we meet: our own step whose answer was lost, or its release.
        while found is not None and not self._try(*found, by, at_once, again()):
            found = self._find(again())
        return True

    def _find(self, until: float) -> tuple[Message, Message | None] | None:
        """Its key, and its index if it is one of several, if it is a holder."""
        answer = self._link.ask("Txn", requests.state(self._name), until)
        queue, indexes = (list(response.response_range.kvs) for response in answer.responses[:2])
        by_lease = {one.lease: one for one in indexes}
        for at, found in enumerate(queue):
            entry, index = stored.decode(found.key, found.value), by_lease.get(found.lease)
            if entry is None or entry.holders == 1:
                index = None
                if at or (entry is not None and not entry.holds):
                    continue
            elif index is None:
                continue
            is_owner = entry is not None and entry.client.owner == self._owner
            if is_owner if self._token is None else (index or found).create_revision == self._token:
                return found, index
        return None

    def _try(self, found: Message, index: Message | None, by: str, at_once: bool, until: float) -> bool:
        """False if the key has changed since it was found."""
        entry = stored.decode(found.key, found.value)
        if at_once or (entry is not None and entry.kept):
            return self._remove(found, index, entry is not None, until)
        if entry is None:
            raise Refused(
                f"the lock {self._name!r} is held by a program other than distlock, which would not be told: --now"
                " frees it at once"
            )
        if entry.revoked_by == by:
            return True
        value = stored.encode(entry._replace(revoked_by=by))
        asked = requests.replace(found.key, found.mod_revision, value, found.lease)
        try:
            return bool(self._link.ask("Txn", asked, until).succeeded)
        except LeaseNotFound:
            return False

    def _remove(self, found: Message, index: Message | None, ours: bool, until: float) -> bool:
        """A lease of somebody else's may be about more than this key."""
        try:
            answer = self._link.ask("Txn", requests.remove(self._name, found, index), until)
        except Full:
            if not ours:
                raise
            self._link.revoke(found.lease, until)
            return True
        if not answer.succeeded:
            return False
        if holding.are_waiting(answer):
            time.sleep(AFTER_YOU)
        if ours:
            revoke_all(self._link, (found.lease,), until)
        return True
