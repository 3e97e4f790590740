"""Locks in tables of one PostgreSQL: ``postgresql://``, ``postgres://``, whatever libpq takes there.

Each step is one statement in a transaction of its own, so nothing belongs to a session and any pooler will do; the
server's clock decides. On a direct connection waiters are woken by NOTIFY; behind a pooler they look by themselves.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, ClassVar, Self

from . import postgres_sql as sql
from .base import SUCCESS, Grant, LeaseLost, LockState, Refused, Revoked, Safety, Unavailable, Unmarked
from .client_record import encode
from .postgres_errors import MissingTables
from .postgres_record import operator, states
from .postgres_several import group_size, groups, state_of, statement, waiting
from .postgres_store import Store, written_marks
from .postgres_ticket import PostgresTicket
from .postgres_url import parse
from .several import other_holders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .base import Environment, Mark, Request
    from .postgres_link import Row
    from .postgres_url import Server

_PAGE = 500
_OF_THE_TIME = 0.8
_LISTEN = 1.0
"""Seconds at most for getting an alarm ready; without it the next renewal tells."""
LOST = {
    "gone": "it ran out before it was renewed, or its row was changed",
    "taken": "it went to somebody else",
    "kept": "it was given back, and the lock is kept",
    "foreign": "its advisory lock went to somebody else",
}


class PostgresBackend(Store):
    safety: ClassVar[Safety] = "correctness"
    exclusive_until: ClassVar[str] = (
        "the lease ends by the server's clock, unless that clock is set, or the server fails over to a standby that is"
        " behind"
    )
    token_scope: ClassVar[str] = (
        "the database; a failover to a standby that is behind, or tables made anew, give greater ones too unless the"
        " clock went back"
    )
    fifo: ClassVar[bool] = True
    keeps: ClassVar[bool] = True

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        super().__init__(server, clock)
        self._rung = -1  # an alarm that has gone off
        self._server_ahead: float | None = None  # µs of the server's wall clock at zero of ours, at most

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        return cls(parse(url).with_password(environment.password), environment.clock)

    # -- the queue and the grant -------------------------------------------------------------------------------------

    def enqueue(self, request: Request) -> PostgresTicket:
        return PostgresTicket(self, request)

    def attempt(self, request: Request, place: str, timeout: float, *, hopeful: bool) -> Row:
        """A row of postgres_acquire.sql, within ``timeout`` of now. ``hopeful``: it may well be a grant, so the short
        way is worth a try."""
        until = self.clock() + timeout
        self.link.connect(until)
        client = request.client
        # The server gives up before we do: what it grants a moment later nobody would hear of.
        left = _OF_THE_TIME * (until - self.clock())
        not_after = 0.0 if self._server_ahead is None else self._server_ahead + (self.clock() + left) * 1e6

        beside = self.beside(request)

        def step(file: str) -> bytes:
            return statement(
                file,
                request.name,
                request.holders,
                owner=sql.text(client.owner),
                ttl=sql.number(request.ttl),
                holding=sql.text(encode(client._replace(since=time.time()), request.ttl)),
                waiting=sql.text(waiting(client, request.ttl, request.holders)),
                channel=sql.text(sql.channel("wake", client.owner)),
                pid=str(self.link.pid),
                place=place,
                timeout=sql.number(left),
                not_after=f"{not_after:.0f}",
                **beside,
            )

        short = hopeful and self.grabs and request.holders == 1
        rows = self.ask(lambda: step("grab"), until, make=True) if short else []
        row = rows[0] if rows else self.ask(lambda: step("acquire"), until, make=True)[0]
        kind, server_time, pid, *_ = row
        if kind == "layout":
            raise self.unknown_layout(row[4])
        if kind == "missing":
            record = sql.statement("record", name=sql.name_bytes(request.name), key=str(sql.PURGING))
            self.ask(lambda: record, until)
        self._server_ahead = int(server_time or 0) - self.clock() * 1e6
        self.answered_by(int(pid or 0), request, tidied=row[8] == "t")
        if kind == "others" or (kind == "waiting" and row[10] and group_size(row[10]) != request.holders):
            raise other_holders(request.name, group_size(row[10]), request.holders)
        return row

    grabs: ClassVar[bool] = True
    """Whether a grant takes nothing beside the row, so that there is a short way to it."""

    def beside(self, request: Request) -> dict[str, str]:
        """What a grant takes beside the row."""
        return {
            "gate": "true",
            "evict": "NULL",
            "tidy": "NULL",
            "session": "NULL::integer",
            "key": "NULL::bigint",
            "end_dead": "NULL",
        }

    def ends_dead(self, name: str) -> str:
        """Ends sessions that have something of holders whose lease ran out: for postgres_several_leave.sql."""
        return "NULL"

    def answered_by(self, pid: int, request: Request, *, tidied: bool) -> None:
        """Told the session that answered a try."""
        self.is_direct = pid == self.link.pid

    is_direct = False
    """Whether the session that answers is the one we logged in to. A pooler hands out a pid of its own making."""

    def granted(self, request: Request, row: Row) -> Grant:
        token, index = int(row[3] or 0), int(row[11] or 0) if request.holders > 1 else 0
        owner = request.client.owner
        return Grant(request.name, owner, token, request.ttl, self.link.sent_at, request.holders, index)

    # -- the lease ---------------------------------------------------------------------------------------------------

    def renew(self, grant: Grant, timeout: float) -> Grant:
        until = self.clock() + timeout
        # For the news that somebody else was granted the lock: asked for together with a renewal, since a second
        # request might have no time left. Without it the next renewal tells.
        news = sql.channel("wake", grant.owner) if self.is_direct else None
        try:
            (row,) = self.link.ask(self.renewal(grant, "true", "NULL::integer"), until, news)
        except MissingTables:
            raise LeaseLost("its table was removed") from None
        return self.judged(grant, row)

    @staticmethod
    def renewal(grant: Grant, gate: str, session: str, elsewhere: str = "false") -> bytes:
        return statement(
            "renew",
            grant.name,
            grant.holders,
            owner=sql.text(grant.owner),
            ttl=sql.number(grant.ttl),
            gate=gate,
            session=session,
            elsewhere=elsewhere,
        )

    def judged(self, grant: Grant, row: Row) -> Grant:
        kind, pid, layout, revoked_by, *_ = row
        if kind == "layout":
            raise self.unknown_layout(layout)
        if kind == "revoked":
            raise Revoked(f"an operator released it: {operator(revoked_by or '')}")
        if kind != "renewed":
            raise LeaseLost(LOST[kind or "gone"])
        self.is_direct = int(pid or 0) == self.link.pid
        return grant._replace(valid_from=self.link.sent_at)

    def alarm(self, grant: Grant) -> int | None:
        """The connection itself. Whoever got the lock at once has not listened yet."""
        if self.is_direct:
            self.link.listen_too(sql.channel("wake", grant.owner), self.clock() + min(grant.ttl / 20, _LISTEN))
            if self.link.descriptor is None:  # dropped just now: what the alarm was for
                if self._rung < 0:
                    self._rung = os.eventfd(1, os.EFD_CLOEXEC)
                self.is_direct = False
                return self._rung
        return self.link.descriptor

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        if keep_for > 0 and not self.keeps:
            raise ValueError("an advisory lock ends with its session: there is nothing to keep it")
        until = self.clock() + timeout
        successes = tuple(mark for mark in marks if mark.slot == SUCCESS)
        try:
            self.leave(grant.name, grant.owner, timeout, marks, keep_for, holders=grant.holders)
        except (MissingTables, Refused, Unavailable) as error:
            if successes == marks or self.link.descriptor is None:
                raise  # it is not for the marks, or there was no answer
            why = f"{self.link.address}: {error}" if isinstance(error, MissingTables) else str(error)
        else:
            return
        self.leave(grant.name, grant.owner, until - self.clock(), successes, keep_for, holders=grant.holders)
        raise Unmarked(why)

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
        """Raises MissingTables if there are marks to write."""
        written = written_marks(name, marks)
        try:
            (row,) = self.ask(
                lambda: statement(
                    "leave",
                    name,
                    holders,
                    owner=sql.text(owner),
                    everyone=sql.text(sql.channel("free", name)),
                    keep=sql.number(keep_for),
                    commit="'on'" if keep_for > 0 or written["marks"] else "'off'",
                    unlock=unlock,
                    end_dead=self.ends_dead(name),
                    **written,
                ),
                self.clock() + timeout,
            )
        except MissingTables:
            if written["marks"]:
                raise
            return  # and with them what we had
        self.check_layout(row[0])

    # -- for people --------------------------------------------------------------------------------------------------

    def inspect(self, name: str, timeout: float) -> LockState:
        found = self._look(f"name = {sql.name_bytes(name)}", name, timeout)
        return found[0] if found else LockState(name, False, None, None, None, None, ())

    def locks(self, timeout: float) -> Iterator[LockState]:
        after = "''"
        while True:
            page = f"SELECT name FROM public.distlock_lock WHERE name > {after} ORDER BY name LIMIT {_PAGE}"
            found = [state for state in self._look(f"name IN ({page})", None, timeout) if state.name]
            yield from (state for state in found if state.held or state.waiters or state.token is not None)
            if len(found) < _PAGE:
                return
            after = sql.name_bytes(found[-1].name)

    def foreign(self, name: str | None) -> str:
        """Whether somebody unknown holds the lock of this name, or of the row: an SQL expression."""
        return "false"

    def foreign_to_several(self) -> str:
        """The same for a lock that several held last."""
        return "false"

    def _look(self, which: str, name: str | None, timeout: float) -> list[LockState]:
        until = self.clock() + timeout
        foreign = self.foreign(name)

        def step(names: str) -> bytes:
            return sql.statement("several_inspect", names=names, foreign=self.foreign_to_several())

        try:
            rows = self.ask(lambda: sql.statement("inspect", which=which, foreign=foreign), until)
            self.check_layout(rows[0][0])
            several = {row[1]: None for row in rows if row[1] and "t" in row[2:4] and group_size(row[13]) > 1}
            names = ", ".join(f"decode('{bytes.fromhex(each).hex()}', 'hex')" for each in several)
            holders = self.ask(lambda: step(names), until) if several else []
        except MissingTables:
            return []
        found, grouped = states(rows, name), {bytes.fromhex(each).decode(errors="replace") for each in several}
        by_name = groups(holders)
        return [state_of(state, by_name.get(state.name)) if state.name in grouped else state for state in found]

    def places(self, name: str) -> tuple[str, ...]:
        row = f"name = '\\x{name.encode().hex()}'"
        return (f"public.distlock_lock: {row}", f"public.distlock_waiter: {row}")

    def close(self) -> None:
        super().close()
        if self._rung >= 0:
            os.close(self._rung)
            self._rung = -1
