"""What a Redis is, and what of its settings breaks locks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from .base import Refused, Unavailable
from .probe import Finding, Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .redis_link import Link

_SECTIONS = "server", "memory", "persistence", "replication"
_SETTINGS = "save", "appendfsync", "min-replicas-to-write"
_FORGOTTEN = "and can be granted a second time while their holders still run."


class Looked(NamedTuple):
    """At one server."""

    address: str
    product: str
    version: str
    role: str
    run_id: str
    """Of its process; empty if it does not tell."""
    clock_offset: float
    findings: tuple[Finding, ...]


def look(link: Link, until: float, *, each_write: bool = False) -> Looked:
    """``each_write``: it is to have each write on disk before it answers. Raises Unavailable, Refused."""
    hello = {key.decode(): value for key, value in link.tell(until, "HELLO").items()}
    before = time.time()
    seconds, microseconds = link.tell(until, "TIME")
    ahead = int(seconds) + int(microseconds) / 1e6 - (before + time.time()) / 2
    found: list[Finding] = []
    told = _asked(lambda: _told(link, until), "INFO", "+info", found)
    settings = _asked(lambda: _settings(link, until), "CONFIG GET", "+config|get", found)
    if told:
        found += _of_memory(told)
        found += _of_disk(told, settings, each_write=each_write)
        found += _of_replication(told, settings)
    return Looked(
        link.address,
        hello["server"].decode().capitalize(),
        hello["version"].decode(),
        hello["role"].decode(),
        told.get("run_id", ""),
        ahead,
        tuple(found),
    )


def probe_of(server: str, looked: Sequence[Looked], more: Iterable[Finding] = ()) -> Probe:
    """Of servers that are used together: what is found at several is one finding. The clock is that which is off
    most."""
    evidence: dict[tuple[str, str], list[str]] = {}
    for one in looked:
        for found in one.findings:
            at = f"{one.address}: {found.evidence}" if len(looked) > 1 else found.evidence
            evidence.setdefault((found.meaning, found.remedy), []).append(at)
    findings = [Finding(meaning, "; ".join(at), remedy) for (meaning, remedy), at in evidence.items()]
    ahead = max((one.clock_offset for one in looked), key=abs, default=None)
    return Probe(server, ahead, (*findings, *more))


def named(looked: Sequence[Looked]) -> str:
    """Product and versions."""
    return ", ".join(sorted({f"{one.product} {one.version}" for one in looked}))


def unseen(what: str, error: Refused | Unavailable, remedy: str) -> Finding:
    """Of what nobody would show us."""
    return Finding(f"{what} could not be looked at: what breaks locks there stays unseen.", str(error), remedy)


# -- what the server tells ---------------------------------------------------------------------------------------------


def _asked(ask: Callable[[], dict[str, str]], command: str, permission: str, found: list[Finding]) -> dict[str, str]:
    try:
        return ask()
    except Refused as error:
        remedy = f"Allow this user {permission}, or look with a user that may."
        found.append(unseen(f"What {command} shows", error, remedy))
        return {}


def _told(link: Link, until: float) -> dict[str, str]:
    text = b"".join(link.tell(until, "INFO", section) for section in _SECTIONS).decode(errors="replace")
    pairs = (line.partition(":") for line in text.splitlines())
    return {name: value for name, colon, value in pairs if colon}


def _settings(link: Link, until: float) -> dict[str, str]:
    found = {}
    for setting in _SETTINGS:
        for name, value in link.tell(until, "CONFIG", "GET", setting).items():
            found[name.decode()] = value.decode(errors="replace")
    return found


# -- what it means -----------------------------------------------------------------------------------------------------


def _of_memory(told: dict[str, str]) -> Iterator[Finding]:
    policy, limit = told.get("maxmemory_policy", "noeviction"), told.get("maxmemory", "0")
    if policy != "noeviction":
        yield Finding(
            "When the memory is full, locks that are held may be thrown away to make room, and be granted twice."
            if limit != "0"
            else "As soon as a maxmemory is set and reached, locks that are held may be thrown away to make room.",
            f"maxmemory-policy {policy}, maxmemory {limit}",
            "Set maxmemory-policy noeviction.",
        )


def _of_disk(told: dict[str, str], settings: dict[str, str], *, each_write: bool) -> Iterator[Finding]:
    save, sync = settings.get("save"), settings.get("appendfsync")
    if told.get("aof_enabled") == "0":
        lost = f"After a crash the locks since the last snapshot are forgotten, {_FORGOTTEN}"
        if save == "":
            lost = f"After a restart all locks are forgotten, {_FORGOTTEN}"
        shown = "appendonly no" if save is None else f'appendonly no, save "{save}"'
        yield Finding(lost, shown, "Set appendonly yes.")
    elif sync == "no":
        lost = f"After a crash of its host the locks of half a minute are forgotten, {_FORGOTTEN}"
        yield Finding(lost, "appendfsync no", f"Set appendfsync {'always' if each_write else 'everysec, or always'}.")
    elif sync == "everysec" and each_write:
        lost = f"After a crash of its host the locks of the last second are forgotten, {_FORGOTTEN}"
        yield Finding(
            lost, "appendfsync everysec", "Set appendfsync always, or keep a server that crashed away for a TTL."
        )
    if told.get("rdb_last_bgsave_status") == "err" or told.get("aof_last_write_status") == "err":
        failed = [name for name in ("rdb_last_bgsave_status", "aof_last_write_status") if told.get(name) == "err"]
        yield Finding(
            "It cannot save its data, and takes no writes then: nobody gets a lock.",
            ", ".join(f"{name} err" for name in failed),
            "Make room on its disk, and see its log.",
        )


def _of_replication(told: dict[str, str], settings: dict[str, str]) -> Iterator[Finding]:
    if told.get("role") == "slave":
        yield Finding(
            "No lock is to be had here: a replica takes no writes.",
            f"role slave of {told.get('master_host')}:{told.get('master_port')}",
            "Use the address of its master, or have sentinels name it: redis+sentinel://.",
        )
    elif told.get("connected_slaves", "0") != "0":
        needed = settings.get("min-replicas-to-write")
        shown = "" if needed is None else f", min-replicas-to-write {needed}"
        yield Finding(
            "A failover can grant a lock a second time: a replica may not know of the last grants.",
            f"connected_slaves {told['connected_slaves']}{shown}",
            "Have what the locks protect check the fencing token; min-replicas-to-write 1 makes it rarer.",
        )
