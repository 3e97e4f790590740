"""A place in the queue of one etcd lock.

Two leases: one for the TTL asked for, which holds the lock once it is granted, and a short one for the place in the
queue, so that a waiter whose host vanished stands in nobody's way for a whole TTL. The grant moves the key from the
one to the other, which leaves its create revision as it is. A lock that is free is taken without queueing.
"""

from __future__ import annotations

import math
import random
import select
import time
from typing import TYPE_CHECKING, ClassVar

from . import etcd_holder as holding
from . import etcd_record as stored
from . import etcd_requests as requests
from .base import DistlockError, Grant, Ticket, Unavailable
from .etcd_driver import pb
from .etcd_errors import LeaseNotFound
from .etcd_held import Held
from .etcd_link import new_lease_id
from .several import other_holders

if TYPE_CHECKING:
    from .base import Request
    from .etcd import EtcdBackend
    from .etcd_driver import Message
    from .etcd_holder import Leaving
    from .etcd_link import Watch

CALL = 3.0
LEAVE = 0.5
"""Who was told to go does not wait longer for its turn to say so."""
QUEUE_TTL = 3
"""Seconds for which a place is kept for a waiter that is not heard of. etcd looks for dead leases each half second."""
SIGN_OF_LIFE = 1.0, 1.2
FRESH = 0.1
"""Part of the TTL after which a lease is renewed before it is handed out."""
WATCH_AGAIN = 0.6, 1.2
"""Seconds to the next look when a watch has ended by itself."""


class EtcdTicket(Ticket):
    """A waiter watches its predecessor only: a release wakes one waiter and not all of them."""

    tries: ClassVar[int] = 6

    def __init__(self, backend: EtcdBackend, request: Request) -> None:
        self._backend = backend
        self._link = backend.link
        self._request = request
        self._call = min(CALL, request.ttl / 2)
        self._open = True
        self._lease = 0
        self._ttl = request.ttl
        self._lease_made = 0.0  # by the server, at the earliest
        self._lease_due = 0.0  # for its next sign of life
        self._queue_lease = 0
        self._queue_due = 0.0
        self._place = 0  # the create revision of our key, once we queue
        self._layout: bytes | None = stored.LAYOUT  # of the record, None if there is none: a guess
        self._before = b""  # the key we wait for
        self._seen = 0  # the revision at which it was there
        self._watch: Watch | None = None
        self._watch_from = 0.0
        self._went = False  # what was before us: most likely it is our turn
        self._void = False  # a lease of ours is no more
        self._prepared = b""  # what to ask once it went,
        self._leaving: Leaving | None = None  # and in the end

    # -- trying ------------------------------------------------------------------------------------------------------

    def poll(self) -> Grant | None:
        until = self._backend.clock() + self._call
        for _ in range(self.tries):
            try:
                if self._void:
                    self._start_over(until)
                self._show_life(until)
                if not self._lease:
                    self._make_lease(until)
                if grant := self._try(until):
                    return grant
                if self._before:
                    return None
            except LeaseNotFound:
                # We were away for longer than a lease: who came since is before us.
                self._void = True
        raise Unavailable(f"{self._backend.address}: what is stored of the lock changes faster than it can be read")

    def _try(self, until: float) -> Grant | None:
        """One step. Without a grant it is over when somebody is known to be before us."""
        if not self._place:
            return self._enter(until)
        if not self._went:
            self._note(self._ask(requests.look(self._name, self._lease, self._place), until))
        if self._before and not self._went:
            return None
        return self._take(until)

    @property
    def _name(self) -> str:
        return self._request.name

    def _ask(self, transaction: Message | bytes, until: float) -> Message:
        return self._link.ask("Txn", transaction, until)

    def _enter(self, until: float) -> Grant | None:
        waiting = (self._queue_lease, self._value(holds=False)) if self._queue_lease else None
        asked_at = self._backend.clock()
        answer = self._ask(
            requests.enter(self._name, self._lease, self._value(holds=True), layout=self._layout, waiting=waiting),
            until,
        )
        if answer.succeeded:
            return self._granted(answer, answer.header.revision, asked_at, until)
        found = requests.found(answer)
        self._check(found)
        if found.mine is not None:  # from a try whose answer was lost
            self._place = found.mine.create_revision
        elif waiting:
            self._place = found.revision
            if found.before is not None:
                self._wait_for(found.before.key, found.revision)
        elif found.before is not None:
            self._make_queue_lease(until)
        return None

    def _take(self, until: float) -> Grant | None:
        asked_at = self._backend.clock()
        answer = self._ask(stored.dated(self._prepared or self._taking(), time.time()), until)
        self._went, self._prepared = False, b""
        if answer.succeeded:
            return self._granted(answer, self._place, asked_at, until)
        self._note(answer)
        return None

    def _taking(self) -> bytes:
        client = self._request.client._replace(since=0.0)
        value = stored.encode(stored.Entry(client, self._request.ttl, holds=True))
        transaction = requests.take(self._name, self._lease, self._place, value, layout=self._layout)
        return bytes(transaction.SerializeToString())

    def _note(self, answer: Message) -> None:
        found = requests.found(answer)
        self._check(found)
        if found.mine is None or found.mine.create_revision != self._place:
            raise LeaseNotFound("our place in the queue is gone")
        if self._layout == stored.SEVERAL and found.record is not None and found.record.mod_revision > self._place:
            # Several had it since, after whoever was before us had gone: our place is no greater than their tokens.
            raise LeaseNotFound("our place in the queue is too old to be a token")
        self._wait_for(found.before.key if found.before is not None else b"", found.revision)

    def _check(self, found: requests.Place) -> None:
        """Raises OtherHolders while it is held by one of several."""
        self._check_record(found.record)
        if found.one_of_several is not None:
            raise other_holders(self._name, stored.holders_in(found.one_of_several.key, found.one_of_several.value), 1)

    def _check_record(self, record: Message | None) -> None:
        layout = None
        if record is not None:
            stored.last_token(record.key, record.value, record.mod_revision)
            layout = stored.layout_of(record.value)
        if self._layout != layout:
            self._layout, self._prepared = layout, b""

    def _value(self, *, holds: bool) -> bytes:
        client = self._request.client._replace(since=time.time()) if holds else self._request.client
        return stored.encode(stored.Entry(client, self._request.ttl, holds, holders=self._request.holders))

    def _granted(self, answer: Message, token: int, asked_at: float, until: float, index: int | None = None) -> Grant:
        """``asked_at`` is before the transaction that granted was sent."""
        ttl, valid_from = self._ttl, self._lease_made
        if asked_at - self._lease_made > FRESH * ttl:
            ttl, valid_from = min(ttl, self._backend.keep_alive(self._lease, answer.header, until)), asked_at
        self._open = False
        request = self._request
        grant = Grant(request.name, request.client.owner, token, ttl, valid_from, request.holders, index or 0)
        # Revoking the lease of the place and closing the watch would only delay the command.
        now = self._backend.clock()
        held = Held(self._lease, self._queue_lease, index, answer.header.revision, now, self._leaving)
        self._backend.remember(grant, held, self._watch)
        self._watch = None
        return grant

    # -- leases ------------------------------------------------------------------------------------------------------

    def _make_lease(self, until: float) -> None:
        self._lease, self._void = new_lease_id(), True  # it may be there though we do not learn of it
        self._lease_made = self._backend.clock()
        granted = self._link.make_lease(self._lease, self._request.ttl, until)
        self._ttl, self._void = min(self._request.ttl, granted), False
        self._lease_due = self._lease_made + self._ttl / 3

    def _make_queue_lease(self, until: float) -> None:
        self._queue_lease = new_lease_id()
        asked_at = self._backend.clock()
        self._link.make_lease(self._queue_lease, QUEUE_TTL, until)
        self._queue_due = asked_at + random.uniform(*SIGN_OF_LIFE)

    def _show_life(self, until: float) -> None:
        """Both leases of a waiter run on. Nothing is concluded from the answers but that one is no more."""
        now = self._backend.clock()
        if not self._place or now < min(self._queue_due, self._lease_due):
            return
        if now >= self._queue_due:
            self._keep_alive(self._queue_lease, until)
            self._queue_due = now + random.uniform(*SIGN_OF_LIFE)
        if now >= self._lease_due:
            self._keep_alive(self._lease, until)
            self._lease_due = now + self._ttl / 3

    def _keep_alive(self, lease: int, until: float) -> None:
        if self._link.ask("LeaseKeepAlive", pb.LeaseKeepAliveRequest(ID=lease), until).TTL <= 0:
            raise LeaseNotFound("a lease ran out")

    def _start_over(self, until: float) -> None:
        self._forget_watch()
        # What is left of us in the queue would be before us.
        for lease in filter(None, (self._queue_lease, self._lease)):
            self._link.revoke(lease, until)
        self._lease = self._queue_lease = self._place = 0
        self._before, self._went, self._void = b"", False, False
        self._prepared, self._leaving = b"", None

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _wait_for(self, key: bytes, revision: int) -> None:
        if key != self._before or (self._watch and self._watch.is_spent):
            self._forget_watch()
        self._before, self._seen = key, revision

    def _forget_watch(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def wait(self, timeout: float, cancel: int) -> None:
        end = self._backend.clock() + timeout
        while self._open and self._before and not self._went:
            now = self._backend.clock()
            try:
                self._show_life(now + self._call)
            except LeaseNotFound:
                self._void = True
                return
            if self._watch is None and now >= self._watch_from:
                # From the revision at which it was seen: nothing that happened in between is missed.
                self._watch = self._link.watch(self._watching(self._seen + 1))
            self._prepare()
            due = min(end, self._queue_due, self._lease_due)
            if self._watch is None:
                due = min(due, self._watch_from)
            if self._is_woken(due, cancel) or self._backend.clock() >= end:
                return
            if self._watch is None:
                return  # without a watch we look

    def _watching(self, since: int) -> Message:
        return requests.removal(self._before, since)

    def _prepare(self) -> None:
        if not self._prepared:
            self._prepared = self._taking()
            self._leaving = holding.leave(holding.Holder(self._name, self._lease, self._place, None))

    def _is_woken(self, due: float, cancel: int) -> bool:
        look = select.poll()
        look.register(cancel, select.POLLIN)
        watch = self._watch
        if watch is not None:
            look.register(watch.descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in look.poll(math.ceil(max(0.0, due - self._backend.clock()) * 1000))}
        if watch is not None and watch.descriptor in ready:
            self._went = watch.told  # and closed when there is time
            if not self._went:
                self._forget_watch()
                self._watch_from = self._backend.clock() + random.uniform(*WATCH_AGAIN)
        return bool(ready)

    # -- leaving -----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._forget_watch()
        until = self._backend.clock() + LEAVE
        try:
            for lease in filter(None, (self._queue_lease, self._lease)):  # the place first: who is behind it waits
                self._link.revoke(lease, until)
        except DistlockError:
            pass  # they run out by themselves
