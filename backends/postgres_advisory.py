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

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Mark
    from .postgres_link import Row
    from .postgres_url import Server

_MAY_BE_ITS = "(a.backend_start IS NULL OR a.backend_start < expires_at - ttl * interval '1 second')"
"""Of a session ``a`` that has the pid on record: somebody else's began after the lease. When it began, another role may
not see."""
_SOON = 0.02
"""Seconds in which a session that is shown out is gone."""
_LOOKS = 25
_MAY_HEAR = 1
"""Seconds in which a session may give up by itself what was released for it."""


def advisory_key(name: str) -> int:
    """The same on every host: the first 8 bytes of blake2b over the name, as a signed number."""
    return int.from_bytes(hashlib.blake2b(name.encode()).digest()[:8], "big", signed=True)


def _is_locked(key: str, which: str) -> str:
    """Whether a session has the advisory lock that is one of ``which``."""
    return f"""EXISTS (
        SELECT FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND l.classid::bigint = (({key}) >> 32 & 4294967295) AND l.objid::bigint = (({key}) & 4294967295)
            AND {which}
    )"""


def _taken(direct: str, key: str) -> str:
    """CASE and not AND, of which no order is promised: nothing is taken in a session of a pooler's."""
    return f"CASE WHEN {direct} THEN pg_try_advisory_lock({key}) ELSE false END"


class AdvisoryBackend(PostgresBackend):
    safety: ClassVar[Safety] = "efficiency"
    exclusive_until: ClassVar[str] = (
        "the lease ends by the server's clock; towards foreign clients until the session ends, which can be before the"
        " command is stopped"
    )

    keeps: ClassVar[bool] = False
    grabs: ClassVar[bool] = False

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        super().__init__(server, clock)
        self._session = 0
        self._locked: dict[str, str] = {}  # name -> owner, of the advisory locks that our session has
        self._dropped: set[str] = set()  # owners whose session has ended

    # -- the grant ---------------------------------------------------------------------------------------------------

    def attempt(self, request: Request, place: str, timeout: float, *, hopeful: bool) -> Row:
        try:
            return super().attempt(request, place, timeout, hopeful=hopeful)
        except DistlockError:
            self._give_back(request.name)
            raise

    def _give_back(self, name: str) -> None:
        """An advisory lock stays with the session, though the statement that took it was undone."""
        if name in self._locked or self.link.descriptor is None:
            return
        if self._locked:
            unlock = f"SELECT pg_advisory_unlock({advisory_key(name)})".encode()
            try:
                self.link.ask_here(unlock, self.clock() + 1.0)
            except (DistlockError, Dropped):
                pass
        else:
            self.link.close()

    def beside(self, name: str, owner: str) -> dict[str, str]:
        self._look_at_session()
        key = str(advisory_key(name))
        # A session may outlive its lease: the process is frozen, or its host has vanished. A lease that ran out
        # entitles to end it; of one that was released by somebody else its holder may hear by itself. Only a session
        # of the same role can be ended, and none that has got its pid since.
        evict = f"""(
            SELECT CASE WHEN pg_terminate_backend(a.pid) THEN {_SOON} END
            FROM pg_stat_get_activity(backend) AS a
            WHERE backend IS NOT NULL AND a.usesysid = quote_ident(current_user)::regrole
                AND a.backend_start < renewed_at
                AND now > expires_at + CASE WHEN holder IS NULL THEN {_MAY_HEAR} ELSE 0 END * interval '1 second'
                AND {_is_locked(key, "true")}
                AND NOT {_is_locked(key, "l.pid <> a.pid")}
        )"""
        direct = f"pg_backend_pid() = {self.link.pid}"
        gate, tidy = _taken(direct, key), "NULL"
        if name in self._locked:
            # Taken a second time it would have to be given up twice.
            gate = direct
            of = sql.text(self._locked[name])
            tidy = f"""CASE WHEN kind = 'waiting' AND {direct} AND holder IS DISTINCT FROM {of}
                THEN pg_advisory_unlock({key}) END"""
        return {"gate": gate, "evict": evict, "tidy": tidy, "session": "pg_backend_pid()", "key": key}

    def answered_by(self, pid: int, request: Request, *, tidied: bool) -> None:
        super().answered_by(pid, request, tidied=tidied)
        if tidied:
            self._locked.pop(request.name, None)
        if not self.is_direct:
            self.leave(request.name, request.client.owner, 1.0)
            raise self._pooled()

    def granted(self, request: Request, token: str) -> Grant:
        self._locked[request.name] = request.client.owner
        return super().granted(request, token)

    # -- the lease ---------------------------------------------------------------------------------------------------

    def renew(self, grant: Grant, timeout: float) -> Grant:
        """In the session that has the lock. Another backend can renew as long as that session has it, and takes a lease
        up whose advisory lock is free."""
        until = self.clock() + timeout
        self._look_at_session()
        try:
            if grant.owner in self._dropped:
                raise Dropped
            if self._locked.get(grant.name) == grant.owner:
                (row,) = self.link.ask_here(self.renewal(grant, "true", "pg_backend_pid()"), until)
            else:
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
        gate = _taken(f"pg_backend_pid() = {self.link.pid}", key)
        elsewhere = f"""EXISTS (
            SELECT FROM pg_stat_get_activity(backend) AS a
            WHERE backend IS NOT NULL AND {_MAY_BE_ITS} AND {_is_locked(key, "l.pid = a.pid")}
        )"""
        (row,) = self.link.ask_here(self.renewal(grant, gate, "pg_backend_pid()", elsewhere), until)
        if int(row[1] or 0) != self.link.pid:
            raise self._pooled()
        if row[0] == "renewed" and row[4] == row[1]:
            self._locked[grant.name] = grant.owner
        return row

    def leave(
        self,
        name: str,
        owner: str,
        timeout: float,
        marks: tuple[Mark, ...] = (),
        keep_for: float = 0.0,
        unlock: str = "true",
    ) -> None:
        self._look_at_session()
        locked = self._locked.get(name) == owner
        if locked:
            # In another session, which the statement is sent to if this one has ended, it would do nothing.
            unlock = f"pg_advisory_unlock({advisory_key(name)})"
        super().leave(name, owner, timeout, marks, keep_for, unlock)
        if locked:
            self._locked.pop(name, None)

    def session_in_the_way(self, name: str) -> dict[str, str]:
        """That of the holder. No session can be ended that has got its pid since, or of which this role may not see
        when it began."""
        key = str(advisory_key(name))
        session = f"""(
            SELECT CASE
                WHEN a.pid = pg_backend_pid() THEN 'own'
                WHEN a.backend_start IS NOT NULL AND (
                    me.rolsuper OR NOT its.rolsuper
                        AND (pg_has_role(a.usesysid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE'))
                ) THEN 'ended'
                ELSE 'refused'
            END
            FROM pg_stat_get_activity(backend) AS a
                JOIN pg_roles AS its ON its.oid = a.usesysid
                JOIN pg_roles AS me ON me.rolname = current_user
            WHERE backend IS NOT NULL AND {_MAY_BE_ITS}
                AND {_is_locked(key, "l.pid = a.pid")}
        )"""
        end = f"""CASE session
            WHEN 'own' THEN pg_advisory_unlock({key})
            WHEN 'ended' THEN pg_terminate_backend(backend)
        END"""
        return {"session": session, "end": end}

    def ended(self, name: str, session: str, until: float) -> None:
        """Who waits is woken again when the session is gone: until then the lock is its."""
        if session == "own":
            self._locked.pop(name, None)
            return
        key, channel = str(advisory_key(name)), sql.text(sql.channel("free", name))
        look = f"SELECT CASE WHEN NOT {_is_locked(key, 'true')} THEN pg_notify({channel}, '')::text END".encode()
        try:
            for _ in range(_LOOKS):
                if self.link.ask(look, until) == [("",)]:
                    return
                time.sleep(_SOON)
        except (DistlockError, MissingTables):
            pass  # they look by themselves in a second

    def _look_at_session(self) -> None:
        """With a new session, or none, nothing is locked any more."""
        if self.link.session != self._session or self.link.descriptor is None:
            self._session = self.link.session
            self._dropped.update(self._locked.values())
            self._locked.clear()

    def _pooled(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.link.address} is a pooler, whose sessions are not the server's: postgresql+advisory:// needs a"
            " direct connection; postgresql:// works through it"
        )

    # -- for people --------------------------------------------------------------------------------------------------

    def foreign(self, name: str | None) -> str:
        key = "lock.advisory_key" if name is None else str(advisory_key(name))
        return _is_locked(key, "l.pid IS DISTINCT FROM lock.backend")

    def places(self, name: str) -> tuple[str, ...]:
        return (f"pg_advisory_lock({advisory_key(name)})", *super().places(name))
