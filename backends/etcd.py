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

from typing import TYPE_CHECKING, ClassVar, Self

from . import etcd_fence, etcd_leave, etcd_look, etcd_probe, etcd_purge
from . import etcd_holder as holding
from . import etcd_record as stored
from . import etcd_requests as requests
from .base import (
    Backend,
    DistlockError,
    Grant,
    LeaseLost,
    LockState,
    Mark,
    Marked,
    Revoked,
    Safety,
    Unavailable,
    Unmarked,
)
from .etcd_driver import pb
from .etcd_errors import LeaseNotFound
from .etcd_held import Held
from .etcd_link import Link
from .etcd_revoke import Target
from .etcd_several import SeveralTicket
from .etcd_ticket import EtcdTicket
from .etcd_url import parse, with_password

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .base import Environment, Request
    from .etcd_driver import Message
    from .etcd_link import Watch
    from .etcd_url import Server
    from .probe import Probe

_NO_WATCH = 0.03
"""Seconds for which a lease is held without a watch, so that the release of a very short command does not wait for one
to be made. Nothing that happens in them is missed."""


class EtcdBackend(Backend):
    safety: ClassVar[Safety] = "correctness"
    exclusive_until: ClassVar[str] = (
        "the lease ends on the leader's monotonic clock, which begins anew with every new leader"
    )
    token_scope: ClassVar[str] = (
        "the cluster, over every failover and restart, as long as it keeps its data: it is the revision of the store"
    )
    fifo: ClassVar[bool] = True
    keeps: ClassVar[bool] = True

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self.address = ",".join(server.endpoints)
        self.clock = clock
        self.link = Link(server, clock)
        self._held: dict[str, Held] = {}  # by owner
        self._spent: list[Watch] = []  # to be closed when nobody waits for it

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        return cls(with_password(parse(url), environment.password), environment.clock)

    def enqueue(self, request: Request) -> EtcdTicket:
        return EtcdTicket(self, request) if request.holders == 1 else SeveralTicket(self, request)

    def remember(self, grant: Grant, held: Held, spent: Watch | None) -> None:
        self._held[grant.owner] = held
        if spent is not None:
            self._spent.append(spent)

    # -- holding -----------------------------------------------------------------------------------------------------

    def renew(self, grant: Grant, timeout: float) -> Grant:
        until = self.clock() + timeout
        held = self._held.get(grant.owner)
        if held and held.watch:
            held.watch.drain()
        valid_from = self.clock()
        mine, entry, header = self._find(grant, until)
        if mine is None or entry is None or entry.kept:
            raise LeaseLost("it ran out before it was renewed, was given back, or its key was removed")
        if entry.revoked_by is not None:
            raise Revoked(f"an operator released it: {entry.revoked_by}")
        try:
            ttl = self.keep_alive(mine.lease, header, until)
        except LeaseNotFound:
            raise LeaseLost("it ran out before it was renewed, or was revoked") from None
        if held:
            self._watch_anew(grant.owner, held, header.revision)
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

    def _find(self, grant: Grant, until: float) -> tuple[Message | None, stored.Entry | None, Message]:
        """The holder's key as the quorum has it now, what it says, and the header of the answer."""
        held = self._held.get(grant.owner)
        answer, candidates = self._candidates(grant, held.lease if held else 0, until)
        for found in candidates:
            entry = stored.decode(found.key, found.value)
            if entry and entry.client.owner == grant.owner:
                return found, entry, answer.header
        return None, None, answer.header

    def _candidates(self, grant: Grant, lease: int, until: float) -> tuple[Message, list[Message]]:
        """Keys of the queue that have the token. ``lease`` is 0 if it is not known."""
        if grant.holders > 1:
            answer = self.link.ask("Txn", requests.holding(grant.name, lease, grant.holder_index), until)
            index, queue = (list(response.response_range.kvs) for response in answer.responses)
            leases = [one.lease for one in index if one.create_revision == grant.token]
            return answer, [one for one in queue if one.lease in leases]
        prefix = stored.queue(grant.name)
        asked = pb.RangeRequest(key=prefix, range_end=stored.behind(prefix))
        if lease:
            asked = pb.RangeRequest(key=stored.key(grant.name, lease))
        answer = self.link.ask("Range", asked, until)
        return answer, [one for one in answer.kvs if one.create_revision == grant.token]

    def alarm(self, grant: Grant) -> int | None:
        """Our own key is watched: whatever others do to it, or to its lease, is known at once."""
        held = self._held.get(grant.owner)
        if held is None or self.clock() < held.since + _NO_WATCH:
            return None
        self._close_spent()
        if held.watch is None:
            try:
                watch = self.link.watch(requests.change(stored.key(grant.name, held.lease), held.seen + 1))
            except DistlockError:
                return None  # what it is, the next renewal tells
            leaving = held.leaving or holding.leave(etcd_leave.holder(grant, held))
            held = held._replace(watch=watch, leaving=leaving)
            self._held[grant.owner] = held
        return held.watch.descriptor if held.watch else None

    def _close_spent(self) -> None:
        while self._spent:
            self._spent.pop().close()

    def _watch_anew(self, owner: str, held: Held, seen: int) -> None:
        watch = held.watch
        if watch is not None and watch.is_spent:
            watch.close()
            watch = None
        self._held[owner] = held._replace(seen=seen, watch=watch)

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        until = self.clock() + timeout
        held, kept = self._held.get(grant.owner), None
        if held is None or keep_for > 0:
            own = self._own(grant, until)
            if own is None:
                if held is not None:
                    etcd_leave.revoke_all(self.link, (held.lease, held.queue_lease), until)
                    self._forget(grant.owner)
                return
            held, entry = own
            kept = etcd_leave.kept_for(entry, keep_for) if keep_for > 0 else None
        try:
            etcd_leave.release(self.link, grant, held, marks, kept, until)
        except Unmarked:
            self._forget(grant.owner)
            raise
        self._forget(grant.owner)

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        until = self.clock() + timeout
        held = self._held.get(grant.owner)
        if held is None:
            own = self._own(grant, until)
            if own is None:
                raise LeaseLost("it ran out, or went to somebody else")
            held, _ = own
        etcd_leave.mark(self.link, grant, held, mark, until)

    def _own(self, grant: Grant, until: float) -> tuple[Held, stored.Entry] | None:
        """What we hold, from the server; None if it is not ours any more."""
        found, entry, header = self._find(grant, until)
        if found is None or entry is None or entry.kept:
            return None
        index = grant.holder_index if grant.holders > 1 else None
        new = Held(int(found.lease), 0, index, header.revision, self.clock(), None)
        return self._held.get(grant.owner, new), entry

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        """By the clocks of this host and of the one that wrote it."""
        return etcd_look.marked(self.link, name, slot, self.clock() + timeout)

    def _forget(self, owner: str) -> None:
        held = self._held.pop(owner, None)
        if held and held.watch:
            held.watch.close()
        self._close_spent()

    # -- for operators and resources ---------------------------------------------------------------------------------

    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        return Target(self.link, name, token, owner).revoke(by, now, self._tries(timeout))

    def inspect(self, name: str, timeout: float) -> LockState:
        return etcd_look.inspect(self.link, name, self.clock() + timeout)

    def locks(self, timeout: float) -> Iterator[LockState]:
        """Foreign ones too, as far as their keys are names. ``timeout`` is for each request."""
        return etcd_look.locks(self.link, lambda: self.clock() + timeout)

    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        return etcd_fence.advance(self.link, resource, index, token, self._tries(timeout))

    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        etcd_fence.reset(self.link, resource, index, self.clock() + timeout)

    def _tries(self, timeout: float) -> Callable[[], float]:
        """The end of the time there is, as long as it is not over: for steps that others can be in the way of."""
        until = self.clock() + timeout

        def again() -> float:
            if self.clock() >= until:
                raise Unavailable(f"{self.address}: what is stored changes faster than it can be read")
            return until

        return again

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        return ()  # etcd has no setting that its clients could see by which it forgets what the quorum agreed to

    def probe(self, timeout: float) -> Probe:
        return etcd_probe.probe(self.link, self.clock, timeout)

    def purge(
        self, wanted: Callable[[str], bool], unused_for: float, timeout: float, *, fences: bool = False
    ) -> Iterator[str]:
        """Tokens are revisions of the store, which only grow: nothing has to be kept for them. Times are those of the
        clocks of the hosts that purge, as etcd has none; see etcd_purge."""
        return etcd_purge.purge(self.link, wanted, unused_for, lambda: self.clock() + timeout, fences=fences)

    def places(self, name: str) -> tuple[str, ...]:
        return tuple(place(name).decode() for place in (stored.queue, stored.record, stored.success, stored.marks))

    def close(self) -> None:
        for owner in list(self._held):
            self._forget(owner)
        self._close_spent()
        self.link.close()
