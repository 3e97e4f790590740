"""Locks on etcd: ``etcd://`` and ``etcds://``, one member or a cluster.

Lease, queue key and revision, as clientv3/concurrency has them, so that `etcdctl lock` and every concurrency.Mutex on
the same prefix exclude us and are excluded, waiting included. Every step that decides goes through the quorum: a grant
survives the loss of any minority.

The token is the create revision of the holder's key, which was made when it began to queue. Tokens grow with the
grants all the same: revisions of a store only grow, the key with the smallest one holds, and a key that is made later
has a greater one than all that are there. So whoever is granted the lock after us was behind us or came later. Nothing
of that rests on a record that could be lost, nor on a clock.

A lease lives on the leader and restarts when another one is elected. Renewing it does not ask the quorum: a leader that
was frozen and does not know yet that it has been replaced says yes to a lease that the others have let go (measured).
Hence the order in ``renew``: note the time, ask the quorum for our key, then renew at the same member. The answer of
the quorum came later than the time noted; from then on either that member's leader is still the one, and renews, or a
new one comes to power after it and starts every lease anew.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, ClassVar, Self

from . import etcd_record as stored
from . import etcd_requests as requests
from .base import Backend, DistlockError, Grant, LeaseLost, LockState, Safety, Unavailable
from .etcd_driver import pb
from .etcd_errors import LeaseNotFound
from .etcd_link import Link
from .etcd_ticket import EtcdTicket
from .etcd_url import parse, with_password

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .base import Environment, Request
    from .etcd_driver import Message
    from .etcd_kept import Kept
    from .etcd_link import Watch
    from .etcd_url import Server

_PAGE = 1000
_NO_WATCH = 0.03
"""Seconds for which a lease is held without a watch, so that the release of a very short command does not wait for one
to be made. Nothing that happens in them is missed."""
_AFTER_YOU = 0.005
"""Seconds until a lease is revoked after its key was removed for somebody who waits: what the server has to write for
it would otherwise come before the grant."""


class EtcdBackend(Backend):
    safety: ClassVar[Safety] = "correctness"
    exclusive_until: ClassVar[str] = (
        "the lease ends on the leader's monotonic clock, which begins anew with every new leader"
    )
    token_scope: ClassVar[str] = (
        "the cluster, over every failover and restart, as long as it keeps its data: it is the revision of the store"
    )
    fifo: ClassVar[bool] = True

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self.address = ",".join(server.endpoints)
        self.clock = clock
        self.link = Link(server, clock)
        self._kept: dict[str, Kept] = {}  # by owner
        self._spent: list[Watch] = []  # to be closed when nobody waits for it

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        return cls(with_password(parse(url), environment.password), environment.clock)

    def enqueue(self, request: Request) -> EtcdTicket:
        return EtcdTicket(self, request)

    def keep(self, grant: Grant, kept: Kept, spent: Watch | None) -> None:
        self._kept[grant.owner] = kept
        if spent is not None:
            self._spent.append(spent)

    # -- holding -----------------------------------------------------------------------------------------------------

    def renew(self, grant: Grant, timeout: float) -> Grant:
        until = self.clock() + timeout
        kept = self._kept.get(grant.owner)
        if kept and kept.watch:
            kept.watch.drain()
        valid_from = self.clock()
        mine, header = self._find(grant, until)
        if mine is None:
            raise LeaseLost("it ran out before it was renewed, or its key was removed")
        try:
            ttl = self.keep_alive(mine.lease, header, until)
        except LeaseNotFound:
            raise LeaseLost("it ran out before it was renewed, or was revoked") from None
        if kept:
            self._watch_anew(grant.owner, kept, header.revision)
        return grant._replace(ttl=min(grant.ttl, ttl), valid_from=valid_from)

    def keep_alive(self, lease: int, header: Message, until: float) -> float:
        """Renew a lease at the member that has just given ``header``: the TTL. Raises LeaseNotFound, and Unavailable
        when another member has answered."""
        answer = self.link.ask_again("LeaseKeepAlive", pb.LeaseKeepAliveRequest(ID=lease), until)
        if answer.TTL <= 0:
            raise LeaseNotFound("the lease is no more")
        if answer.header.member_id != header.member_id or answer.header.raft_term < header.raft_term:
            raise Unavailable(f"{self.address}: another member answered in between")
        return float(answer.TTL)

    def _find(self, grant: Grant, until: float) -> tuple[Message | None, Message]:
        """The holder's key as the quorum has it now, and the header of the answer."""
        kept = self._kept.get(grant.owner)
        if kept:
            asked = pb.RangeRequest(key=stored.key(grant.name, kept.lease))
        else:
            prefix = stored.queue(grant.name)
            asked = pb.RangeRequest(key=prefix, range_end=stored.behind(prefix))
        answer = self.link.ask("Range", asked, until)
        for found in answer.kvs:
            entry = stored.decode(found.key, found.value) if found.create_revision == grant.token else None
            if entry and entry.client.owner == grant.owner:
                return found, answer.header
        return None, answer.header

    def alarm(self, grant: Grant) -> int | None:
        """Our own key is watched: a lease that was revoked or a key that was deleted is known at once."""
        kept = self._kept.get(grant.owner)
        if kept is None or self.clock() < kept.since + _NO_WATCH:
            return None
        self._close_spent()
        if kept.watch is None:
            try:
                watch = self.link.watch(requests.removal(stored.key(grant.name, kept.lease), kept.seen + 1))
            except DistlockError:
                return None  # what it is, the next renewal tells
            kept = kept._replace(watch=watch, leaving=kept.leaving or self._leaving(grant, kept.lease))
            self._kept[grant.owner] = kept
        return kept.watch.descriptor if kept.watch else None

    @staticmethod
    def _leaving(grant: Grant, lease: int) -> requests.Leaving:
        return requests.leave(grant.name, stored.key(grant.name, lease), grant.token or 0)

    def _close_spent(self) -> None:
        while self._spent:
            self._spent.pop().close()

    def _watch_anew(self, owner: str, kept: Kept, seen: int) -> None:
        watch = kept.watch
        if watch is not None and watch.is_spent:
            watch.close()
            watch = None
        self._kept[owner] = kept._replace(seen=seen, watch=watch)

    def release(self, grant: Grant, timeout: float, ran_for: float | None = None) -> None:
        until = self.clock() + timeout
        kept = self._kept.get(grant.owner)
        if kept is None:
            mine, _ = self._find(grant, until)
            if mine is None:
                return
            leaving, leases = requests.leave(grant.name, mine.key, mine.create_revision), [int(mine.lease)]
        else:
            leaving, leases = kept.leaving or self._leaving(grant, kept.lease), [kept.lease, kept.queue_lease]
        # The key first: revoking the lease would remove it too, and take twice as long to wake the next one.
        asked = leaving.plain if ran_for is None else stored.started(leaving.succeeded, ran_for)
        answer = self.link.ask("Txn", asked, until)
        if kept:
            self._forget(grant.owner)
        if requests.are_waiting(answer):
            time.sleep(_AFTER_YOU)
        for lease in filter(None, leases):
            try:
                self.link.revoke(lease, until)
            except DistlockError:
                break  # the lock is free: what is left has no key and runs out by itself

    def _forget(self, owner: str) -> None:
        kept = self._kept.pop(owner)
        if kept.watch:
            kept.watch.close()
        self._close_spent()

    # -- looking -----------------------------------------------------------------------------------------------------

    def inspect(self, name: str, timeout: float) -> LockState:
        until = self.clock() + timeout
        while True:
            answer = self.link.ask("Txn", requests.state(name), until)
            queue, record, success = (list(response.response_range.kvs) for response in answer.responses)
            found = self._state(name, queue, _only(record), _only(success), until)
            if found is not None:
                return found

    def locks(self, timeout: float) -> Iterator[LockState]:
        """Foreign ones too, as far as their keys are names. ``timeout`` is for each request. A lock of an unknown
        layout does not hide the others: it is told behind the last."""
        queues: defaultdict[str, list[Any]] = defaultdict(list)
        for found in self._all(stored.LOCKS, timeout):
            name = stored.decoded(found.key.removeprefix(stored.LOCKS).partition(b"/")[0])
            if name is not None and found.key.startswith(stored.queue(name)):
                queues[name].append(found)
        records, successes = (
            {stored.decoded(found.key.removeprefix(prefix)): found for found in self._all(prefix, timeout)}
            for prefix in (stored.RECORDS, stored.SUCCESSES)
        )
        problem: DistlockError | None = None
        for name in sorted({*queues, *filter(None, records)}):
            queue = sorted(queues[name], key=lambda one: int(one.create_revision))
            try:
                state = self._state(name, queue, records.get(name), successes.get(name), self.clock() + timeout)
                yield state or self.inspect(name, timeout)
            except stored.UnknownLayout as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def _all(self, prefix: bytes, timeout: float) -> Iterator[Any]:
        start = prefix
        while True:
            answer = self.link.ask("Range", requests.page(start, prefix, _PAGE), self.clock() + timeout)
            yield from answer.kvs
            if not answer.more:
                return
            start = answer.kvs[-1].key + b"\0"

    def _state(self, name: str, queue: list[Any], record: Any, success: Any, until: float) -> LockState | None:
        """None if the holder has gone meanwhile."""
        last_success = stored.last_success(success.value) if success is not None else None
        token = stored.last_token(record.key, record.value, record.mod_revision) if record is not None else None
        entries = [stored.decode(one.key, one.value) for one in queue]
        holder = entries[0] if entries else None
        if not queue or (holder and not holder.holds):
            clients = tuple(entry.client for entry in entries if entry)
            return LockState(name, False, token, None, None, None, clients, last_success)
        left: float | None = None
        ttl = holder.ttl if holder else None
        if queue[0].lease:
            lease = self.link.ask("LeaseTimeToLive", pb.LeaseTimeToLiveRequest(ID=queue[0].lease), until)
            if lease.TTL < 0:
                return None
            # Whole seconds, rounded down; in the last one it is not over yet.
            left = max(float(lease.TTL), 0.001)
            ttl = ttl or float(lease.grantedTTL)
        return LockState(
            name=name,
            held=True,
            token=int(queue[0].create_revision),
            holder=holder.client if holder else None,
            ttl=ttl,
            expires_in=left,
            waiters=tuple(entry.client for entry in entries[1:] if entry),
            last_success=last_success,
        )

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        return ()  # etcd has no setting that its clients could see by which it forgets what the quorum agreed to

    def places(self, name: str) -> tuple[str, ...]:
        return tuple(place(name).decode() for place in (stored.queue, stored.record, stored.success))

    def close(self) -> None:
        for owner in list(self._kept):
            self._forget(owner)
        self._close_spent()
        self.link.close()


def _only(found: list[Any]) -> Any:
    return found[0] if found else None
