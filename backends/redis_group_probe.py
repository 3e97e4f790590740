"""What of a group of Redis breaks locks, beside what each of its servers says: sentinels, nodes of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import DistlockError, Refused, Unavailable
from .probe import Finding
from .redis_probe import unseen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from .redis_link import Link

_SLOTS = 16384
_SENTINEL = "Allow the user of the sentinels +sentinel."
_CLUSTER = "Allow this user +cluster."


# -- sentinels ---------------------------------------------------------------------------------------------------------


def of_sentinels(
    sentinels: Sequence[tuple[str, Link | DistlockError]], service: str, until: float
) -> Iterator[Finding]:
    """``sentinels``: each that the URL names, and how it is reached or why not."""
    for address, link in sentinels:
        try:
            if isinstance(link, DistlockError):
                raise link
            yield from _of_sentinel(link, service, until)
        except Refused as error:
            yield unseen(f"What the sentinel {address} knows", error, _SENTINEL)
        except DistlockError as error:
            yield Finding(
                "A sentinel is down: with too few of them there is no failover, and with none nobody gets a lock.",
                str(error),
                f"Start the sentinel at {address}.",
            )


def _of_sentinel(link: Link, service: str, until: float) -> Iterator[Finding]:
    master = _texts(link.tell(until, "SENTINEL", "MASTER", service))
    if "down" in master.get("flags", ""):
        yield Finding(
            "The master is down by the word of a sentinel: nobody gets a lock before a failover.",
            f"{link.address}: flags {master['flags']}",
            f"Start {master.get('ip')}:{master.get('port')}, or see why no replica takes its place.",
        )
    try:
        link.tell(until, "SENTINEL", "CKQUORUM", service)
    except Refused:
        raise
    except Unavailable as error:
        yield Finding(
            "There are too few sentinels for a failover: when the master goes, nobody gets a lock.",
            str(error),
            "Start the sentinels that are down.",
        )
    replicas = [_texts(replica) for replica in link.tell(until, "SENTINEL", "REPLICAS", service)]
    good = [one for one in replicas if "down" not in one.get("flags", "") and "disconnected" not in one["flags"]]
    if not good:
        yield Finding(
            "There is no replica that could take the master's place: when it goes, nobody gets a lock.",
            f"{link.address}: {len(replicas)} replicas, none of them up",
            "Start a replica.",
        )


def _texts(answer: Any) -> dict[str, str]:
    pairs = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# -- a cluster ---------------------------------------------------------------------------------------------------------


def of_cluster(link: Link, until: float) -> Iterator[Finding]:
    """As one of its nodes says."""
    try:
        told = _lines(link.tell(until, "CLUSTER", "INFO"), ":")
        nodes = _text(link.tell(until, "CLUSTER", "NODES")).splitlines()
    except Refused as error:
        yield unseen("The state of the cluster", error, _CLUSTER)
        return
    state, slots = told.get("cluster_state", "?"), told.get("cluster_slots_assigned", "?")
    if state != "ok" or slots != str(_SLOTS):
        yield Finding(
            "Some locks, or all, are not to be had: slots have no node.",
            f"{link.address}: cluster_state {state}, cluster_slots_assigned {slots} of {_SLOTS}",
            "Give each slot to a master that is up.",
        )
    down = [place.partition("@")[0] for _, place, flags, *_ in map(str.split, nodes) if "fail" in flags]
    if down:
        yield Finding(
            "Nodes of the cluster are down: locks whose slot is there are not to be had, or have no failover.",
            f"{link.address}: CLUSTER NODES, fail: {', '.join(sorted(down))}",
            f"Start {', '.join(sorted(down))}.",
        )


def _lines(answer: Any, separator: str) -> dict[str, str]:
    pairs: Iterable[tuple[str, str, str]] = (line.partition(separator) for line in _text(answer).splitlines())
    return {name: value for name, _, value in pairs}
