"""How a holder gives the lock back, and what it leaves for later runs to see: marks, or a lock that is kept.

A mark and a lock that is kept have leases of their own, which are made before the step that needs them. A new leader
of etcd starts every lease anew, so a mark may outlive its time: its value says until when it counts, and the next mark
of the lock sweeps away those of which the time is over.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from . import etcd_holder as holding
from . import etcd_record as stored
from . import etcd_requests as requests
from .base import SUCCESS, DistlockError, LeaseLost, Mark, Unmarked
from .etcd_errors import Full
from .etcd_holder import Written
from .etcd_link import Link, new_lease_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .base import Grant
    from .etcd_driver import Message
    from .etcd_held import Held

AFTER_YOU = 0.005
"""Seconds until a lease is revoked after its key was removed for somebody who waits: what the server has to write for
it would otherwise come before the grant."""
_SWEPT = 10
"""Marks at most that a new one sweeps away."""


def release(
    link: Link, grant: Grant, held: Held, marks: tuple[Mark, ...], kept: stored.Entry | None, until: float
) -> None:
    """With ``kept`` the lock is not free: the entry's TTL is for how long. Raises Unmarked, Unavailable, Refused."""
    others = [mark for mark in marks if mark.slot != SUCCESS]
    problem: Full | None = None
    spare: set[int] = set()
    try:
        if kept is None and not others:
            answer = link.ask("Txn", _prepared(grant, held, marks), until)
        else:
            answer, spare = _leave_with(link, grant, held, marks, kept, until)
        if holding.are_waiting(answer) and kept is None:
            time.sleep(AFTER_YOU)
    except Full as error:
        if kept is not None:
            raise
        # No key can be written, but ours goes with its lease all the same.
        link.revoke(held.lease, until)
        problem = error
    revoke_all(link, (held.lease, held.queue_lease, *spare), until)
    if others and problem is None:
        _sweep(link, grant.name, until)
    if others and problem is not None:
        raise Unmarked(str(problem)) from problem


def holder(grant: Grant, held: Held) -> holding.Holder:
    return holding.Holder(grant.name, held.lease, grant.token or 0, held.number)


def _prepared(grant: Grant, held: Held, marks: tuple[Mark, ...]) -> bytes:
    leaving = held.leaving or holding.leave(holder(grant, held))
    return stored.dated_mark(leaving.succeeded, marks[0].ago, marks[0].keep) if marks else leaving.plain


def _leave_with(
    link: Link, grant: Grant, held: Held, marks: tuple[Mark, ...], kept: stored.Entry | None, until: float
) -> tuple[Message, set[int]]:
    """The answer, and leases that nothing is under."""
    keeping: Written | None = None
    if kept is not None:
        lease = new_lease_id()
        link.make_lease(lease, kept.ttl, until)
        keeping = Written(stored.key(grant.name, held.lease), stored.encode(kept), lease)
    written = _with_leases(link, grant.name, marks, until)
    made = {one.lease for one in (*written, *([keeping] if keeping else [])) if one.lease}
    asked = holding.leave_with(holder(grant, held), grant.holders, keeping, written)
    answer = link.ask("Txn", asked, until)
    return answer, _spare(answer, made)


def mark(link: Link, grant: Grant, held: Held, wanted: Mark, until: float) -> None:
    """Raises LeaseLost, Unavailable, Refused."""
    written = _with_leases(link, grant.name, (wanted,), until)
    answer = link.ask("Txn", holding.mark(holder(grant, held), written), until)
    revoke_all(link, _spare(answer, {one.lease for one in written if one.lease}), until)
    if not answer.succeeded:
        raise LeaseLost("it ran out, or its key was removed")
    _sweep(link, grant.name, until)


def _with_leases(link: Link, name: str, marks: tuple[Mark, ...], until: float) -> list[Written]:
    """That of the last success is the one record of a lock that stays."""
    written = []
    for one in marks:
        lease = 0 if one.slot == SUCCESS else new_lease_id()
        if lease:
            link.make_lease(lease, max(one.keep, 1.0), until)
        written.append(Written(stored.mark(name, one.slot), stored.new_mark(one.ago, one.keep), lease))
    return written


def _spare(answer: Message, made: set[int]) -> set[int]:
    """Leases that nothing is under after a step. If its answer was lost and it was asked again, the first time has done
    it: then a mark has replaced itself, or the second time fails and what it looked at tells."""
    return holding.leases_before(answer) - made if answer.succeeded else made - holding.leases_in_use(answer)


def _sweep(link: Link, name: str, until: float) -> None:
    """Some marks of which the time is over, with their leases."""
    with suppress(DistlockError):  # or the next mark does
        oldest = link.ask("Range", requests.oldest(stored.marks(name), _SWEPT), until).kvs
        over = {int(one.lease) for one in oldest if stored.marked(one.key, one.value) is None}
        revoke_all(link, over, until)


def revoke_all(link: Link, leases: Iterable[int], until: float) -> None:
    for lease in filter(None, leases):
        try:
            link.revoke(lease, until)
        except DistlockError:
            return  # what is left has no key, or none that counts, and runs out by itself


def kept_for(entry: stored.Entry, seconds: float) -> stored.Entry:
    """For at least so long: a lease is whole seconds."""
    return entry._replace(ttl=float(math.ceil(seconds)), kept=True, revoked_by=None)
