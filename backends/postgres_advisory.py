"""Advisory locks of PostgreSQL that foreign clients respect: ``postgresql+advisory://``.

The lock is ``pg_advisory_lock(KEY)`` in our session. PostgreSQL gives it on the moment the session ends, whatever the
holder is doing then: so the row of a lease is kept as well, and whoever of us gets the advisory lock waits out a lease
that was not released. Only a foreign client comes in that early, and the holder, who hears of the end of its session,
ends its command at once. Hence the class efficiency.
"""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, ClassVar

from . import postgres_sql as sql
from .base import ConfigurationError, DistlockError, Grant, LeaseLost, Request, Safety
from .postgres import PostgresBackend
from .postgres_errors import Dropped, MissingTables
from .postgres_sessions import MAY_BE_ITS, SOON, dead_ended, ended, evicted, in_the_way, is_locked, taken, unlocked
from .postgres_several import group_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Mark
    from .postgres_link import Row
    from .postgres_url import Server

_LOOKS = 25


def advisory_key(name: str) -> int:
    """The same on every host: the first 8 bytes of blake2b over the name, as a signed number."""
    return int.from_bytes(hashlib.blake2b(name.encode()).digest()[:8], "big", signed=True)


class AdvisoryBackend(PostgresBackend):
    safety: ClassVar[Safety] = "efficiency"
    exclusive_until: ClassVar[str] = (
        "the lease ends by the server's clock; towards foreign clients until the session ends, which can be before the"
        " command is stopped"
    )

    keeps: ClassVar[bool] = False
    grabs: ClassVar[bool] = False
    session_is_the_lock: ClassVar[bool] = True

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        super().__init__(server, clock)
        self._session = 0
        self._locked: dict[str, str] = {}  # name -> owner, of the advisory locks that our session has
        self._shared: set[tuple[str, str]] = set()  # name and owner, of those that it has once for each
        self._dropped: set[str] = set()  # owners whose session has ended

    # -- the grant ---------------------------------------------------------------------------------------------------

    def attempt(self, request: Request, place: str, timeout: float, *, hopeful: bool) -> Row:
        until = self.clock() + timeout
        try:
            row = super().attempt(request, place, timeout, hopeful=hopeful)
        except DistlockError:
            self._give_back(request)
            raise
        if row[0] == "foreign" and request.holders == 1 and group_size(row[11]) > 1:
            return self._show_out(request.name, row, until)
        return row

    def _give_back(self, request: Request) -> None:
        """An advisory lock stays with the session, though the statement that took it was undone."""
        name, shared = request.name, request.holders > 1
        known = any(each == name for each, _ in self._shared) if shared else name in self._locked
        if known or self.link.descriptor is None:
            return
        if self._locked or self._shared:
            unlock = f"SELECT {unlocked(str(advisory_key(name)), shared=shared)}".encode()
            try:
                self.link.ask_here(unlock, self.clock() + 1.0)
            except (DistlockError, Dropped):
                pass
        else:
            self.link.close()

    def beside(self, request: Request) -> dict[str, str]:
        self._look_at_session()
        name = request.name
        key = str(advisory_key(name))
        direct = f"pg_backend_pid() = {self.link.pid}"
        gate, tidy = taken(direct, key, request.holders), "NULL"
        if request.holders > 1 and (name, request.client.owner) in self._shared:
            gate = direct
        if name in self._locked:
            of = sql.text(self._locked[name])
            when = "kind IN ('waiting', 'granted', 'foreign')"
            if request.holders == 1:
                gate, when = direct, "kind = 'waiting'"  # taken a second time it would have to be given up twice
            tidy = f"""CASE WHEN {when} AND {direct} AND (holder IS DISTINCT FROM {of} OR {request.holders} > 1)
                THEN pg_advisory_unlock({key}) END"""
        end_dead = self.ends_dead(name)
        return {
            "gate": gate,
            "evict": evicted(key),
            "tidy": tidy,
            "session": "pg_backend_pid()",
            "key": key,
            "end_dead": end_dead,
        }

    def ends_dead(self, name: str) -> str:
        return dead_ended(str(advisory_key(name)))

    def _show_out(self, name: str, row: Row, until: float) -> Row:
        """Sessions of holders whose leases have run out, all of them: a plain lock comes next."""
        places = sql.part("several", name=sql.name_bytes(name))
        # One part of a statement sees nothing of another one's writes: it is a query by itself.
        ending = f"{places} ended AS MATERIALIZED (SELECT {self.ends_dead(name)} AS n) SELECT n FROM ended".encode()
        try:
            (ended,) = self.link.ask(ending, until)
        except (DistlockError, MissingTables):
            return row  # what is in the way will be asked for again
        return (*row[:5], str(SOON), *row[6:]) if ended != ("0",) else row

    def answered_by(self, pid: int, request: Request, *, tidied: bool) -> None:
        super().answered_by(pid, request, tidied=tidied)
        if tidied:
            self._locked.pop(request.name, None)
        if not self.is_direct:
            self.leave(request.name, request.client.owner, 1.0, holders=request.holders)
            raise self._pooled()

    def granted(self, request: Request, row: Row) -> Grant:
        grant = super().granted(request, row)
        self._has(grant)
        return grant

    def _has(self, grant: Grant) -> None:
        if grant.holders > 1:
            self._shared.add((grant.name, grant.owner))
        else:
            self._locked[grant.name] = grant.owner

    def _is_ours(self, name: str, owner: str, holders: int) -> bool:
        return (name, owner) in self._shared if holders > 1 else self._locked.get(name) == owner

    # -- the lease ---------------------------------------------------------------------------------------------------

    def renew(self, grant: Grant, timeout: float) -> Grant:
        """In the session that has the lock. Another backend can renew as long as that session has it, and takes a lease
        up whose advisory lock is free."""
        until = self.clock() + timeout
        self._look_at_session()
        try:
            if grant.owner in self._dropped:
                raise Dropped
            if self._is_ours(grant.name, grant.owner, grant.holders):
                (row,) = self.link.ask_here(self.renewal(grant, "true", "pg_backend_pid()"), until)
            else:
                try:
                    row = self._taken_up(grant, until)
                except Dropped:  # a session that did not have it
                    row = self._taken_up(grant, until)
        except MissingTables:
            raise LeaseLost("its table was removed") from None
        except Dropped:
            self._look_at_session()
            raise LeaseLost("the session that held its advisory lock has ended") from None
        return self.judged(grant, row)

    def _taken_up(self, grant: Grant, until: float) -> Row:
        self.link.connect(until)
        self._look_at_session()
        key = str(advisory_key(grant.name))
        gate = taken(f"pg_backend_pid() = {self.link.pid}", key, grant.holders)
        elsewhere = f"""EXISTS (
            SELECT FROM pg_stat_get_activity(backend) AS a
            WHERE backend IS NOT NULL AND {MAY_BE_ITS} AND {is_locked(key, "l.pid = a.pid")}
        )"""
        (row,) = self.link.ask_here(self.renewal(grant, gate, "pg_backend_pid()", elsewhere), until)
        if int(row[1] or 0) != self.link.pid:
            raise self._pooled()
        if row[0] == "renewed" and row[4] == row[1]:
            self._has(grant)
        return row

    def leave(
        self,
        name: str,
        owner: str,
        timeout: float,
        marks: tuple[Mark, ...] = (),
        keep_for: float = 0.0,
        unlock: str = "true",
        holders: int = 1,
    ) -> None:
        self._look_at_session()
        locked = self._is_ours(name, owner, holders)
        if locked:
            # In another session, which the statement is sent to if this one has ended, it would do nothing.
            unlock = unlocked(str(advisory_key(name)), shared=holders > 1)
        super().leave(name, owner, timeout, marks, keep_for, unlock, holders)
        if locked and holders > 1:
            self._shared.discard((name, owner))
        elif locked:
            self._locked.pop(name, None)

    def session_in_the_way(self, name: str, *, shared: bool) -> dict[str, str]:
        """That of the holder. No session can be ended that has got its pid since, or of which this role may not see
        when it began."""
        key = str(advisory_key(name))
        return {"session": in_the_way(key), "end": ended(key, shared=shared)}

    def ended(self, name: str, session: str, until: float, *, shared: bool) -> None:
        """Who waits is woken again when the session is gone: until then the lock is its."""
        if shared:
            return  # nobody of ours waits for what is shared
        if session == "own":
            self._locked.pop(name, None)
            return
        key, channel = str(advisory_key(name)), sql.text(sql.channel("free", name))
        look = f"SELECT CASE WHEN NOT {is_locked(key, 'true')} THEN pg_notify({channel}, '')::text END".encode()
        try:
            for _ in range(_LOOKS):
                if self.link.ask(look, until) == [("",)]:
                    return
                time.sleep(SOON)
        except (DistlockError, MissingTables):
            pass  # they look by themselves in a second

    def _look_at_session(self) -> None:
        """With a new session, or none, nothing is locked any more."""
        if self.link.session != self._session or self.link.descriptor is None:
            self._session = self.link.session
            self._dropped.update(self._locked.values(), (owner for _, owner in self._shared))
            self._locked.clear()
            self._shared.clear()

    def _pooled(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.link.address} is a pooler, whose sessions are not the server's: postgresql+advisory:// needs a"
            " direct connection; postgresql:// works through it"
        )

    # -- for people --------------------------------------------------------------------------------------------------

    def foreign(self, name: str | None) -> str:
        key = "lock.advisory_key" if name is None else str(advisory_key(name))
        return is_locked(key, "l.pid IS DISTINCT FROM lock.backend")

    def foreign_to_several(self) -> str:
        ours = "SELECT m.backend FROM public.distlock_holder AS m WHERE m.name = lock.name AND m.backend IS NOT NULL"
        return is_locked("lock.advisory_key", f"l.pid NOT IN ({ours})")

    def places(self, name: str) -> tuple[str, ...]:
        return (f"pg_advisory_lock({advisory_key(name)})", *super().places(name))
