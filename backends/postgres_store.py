"""What holders, operators and resources store in PostgreSQL beside the lease, and what has to be there for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from . import postgres_sql as sql
from .base import SUCCESS, SUCCESS_KEPT, Backend, LeaseLost, Marked, Refused, Unavailable
from .postgres_errors import MissingTables
from .postgres_link import Link
from .postgres_probe import probe
from .postgres_purge import forget_fences, forget_locks
from .postgres_setup import make_tables, privileges_missing, shortcomings
from .postgres_several import group_size, statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .base import Grant, Mark
    from .postgres_link import Row
    from .postgres_url import Server
    from .probe import Probe


def written_marks(name: str, marks: tuple[Mark, ...]) -> dict[str, str]:
    """What a statement writes of them. The last success is in the lock's row, which is written anyway."""
    succeeded = [mark.ago for mark in marks if mark.slot == SUCCESS]
    others = {mark.slot: mark for mark in marks if mark.slot != SUCCESS}
    values = ", ".join(
        f"({sql.name_bytes(mark.slot)}, {sql.number(mark.ago)}, {sql.number(mark.keep)})" for mark in others.values()
    )
    return {
        "succeeded": sql.number(succeeded[-1]) if succeeded else "NULL::float",
        "marks": sql.part("marks", name=sql.name_bytes(name), values=values) if others else "",
    }


class Store(Backend):
    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.link = Link(server, clock)

    # -- marks -------------------------------------------------------------------------------------------------------

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        written = written_marks(grant.name, (mark,))
        writing = statement("mark", grant.name, grant.holders, owner=sql.text(grant.owner), **written)
        try:
            (row,) = self.ask(lambda: writing, self.clock() + timeout)
        except MissingTables as error:
            raise Unavailable(f"{self.link.address}: {error}", permanent=True) from error
        self.check_layout(row[0])
        if row[1] != "t":
            raise LeaseLost("it ran out, or went to somebody else")

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        if slot == SUCCESS:
            kept = f"succeeded_at + interval '{SUCCESS_KEPT} seconds'"
            found = f"succeeded_at AS began_at, {kept} AS until FROM public.distlock_lock"
            which = f"name = {sql.name_bytes(name)}"
        else:
            found = "began_at, kept_until AS until FROM public.distlock_mark"
            which = f"name = {sql.name_bytes(name)} AND slot = {sql.name_bytes(slot)}"
        looking = sql.statement("marked", found=f"SELECT {found} WHERE {which}")
        try:
            (row,) = self.ask(lambda: looking, self.clock() + timeout)
        except MissingTables:
            return None
        self.check_layout(row[0])
        return Marked(float(row[1]), float(row[2])) if row[1] and row[2] else None

    # -- an operator takes a lease away ------------------------------------------------------------------------------

    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        until = self.clock() + timeout
        values = {
            "meant": f"token = {token}" if token is not None else f"owner = {sql.text(owner or '')}",
            "by": sql.name_bytes(by),
            "at_once": str(now),
            "everyone": sql.text(sql.channel("free", name)),
        }

        def revoked(*, several: bool) -> Row:
            values.update(self.session_in_the_way(name, shared=several))
            (row,) = self.ask(lambda: statement("revoke", name, 2 if several else 1, **values), until)
            self.check_layout(row[0])
            return row

        several = False
        try:
            row = revoked(several=False)
            if row[1] == "another" and group_size(row[8]) > 1:
                several = True
                row = revoked(several=True)
        except MissingTables:
            return False
        _, kind, session, pid, *_ = row
        if kind == "refused":
            raise Refused(
                f"{self.link.address}: the lock is that of a session (pid {pid}) which this role may not end: nothing"
                " was done; without --now its holder is told to end it"
            )
        if kind == "revoked" and session:
            self.ended(name, session, until, shared=several)
        return kind == "revoked"

    def session_in_the_way(self, name: str, *, shared: bool) -> dict[str, str]:
        """What a lock is beside its row: for postgres_revoke.sql."""
        return {"session": "NULL", "end": "NULL"}

    def ended(self, name: str, session: str, until: float, *, shared: bool) -> None:
        """Told what was done with it."""

    # -- registers of fencing tokens ---------------------------------------------------------------------------------

    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        until = self.clock() + timeout
        of = {"resource": sql.name_bytes(resource), "index": str(index), "token": str(token)}

        def step(used: str = "") -> bytes:
            return sql.statement("fence", **of, used=used)

        try:
            (row,) = self.ask(lambda: step(", used_at = clock_timestamp()"), until, make=True)
        except Refused:
            # Perhaps just the right to add to tables of an earlier version when a register was used, which purge asks.
            (row,) = self.ask(step, until, make=True)
        self.check_layout(row[0])
        return int(row[1] or 0)

    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        of = {"resource": sql.name_bytes(resource), "index": str(index)}
        try:
            (row,) = self.ask(lambda: sql.statement("unfence", **of), self.clock() + timeout)
        except MissingTables:
            return
        self.check_layout(row[0])

    # -- forgetting --------------------------------------------------------------------------------------------------

    def purge(
        self, wanted: Callable[[str], bool], unused_for: float, timeout: float, *, fences: bool = False
    ) -> Iterator[str]:
        forget = forget_fences if fences else forget_locks
        try:
            yield from forget(
                lambda step: self.ask(lambda: step, self.clock() + timeout), self.check_layout, wanted, unused_for
            )
        except MissingTables:
            return

    # -- the server --------------------------------------------------------------------------------------------------

    def prepare(self, timeout: float) -> tuple[str, ...]:
        until = self.clock() + timeout
        make_tables(self.link, until)
        missing = privileges_missing(self.link, until)
        if missing:
            raise Refused(f"{self.link.address}: this role may not {', '.join(missing)}: GRANT it by the tables' owner")
        found = f"tables public.distlock_* at {self.link.address}, which this role may use"
        missing = privileges_missing(self.link, until, several=True)
        return (found, f"for --max-holders it needs {', '.join(missing)} too") if missing else (found,)

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        return shortcomings(self.link, self.clock() + timeout)

    session_is_the_lock: ClassVar[bool] = False

    def probe(self, timeout: float) -> Probe:
        return probe(self.link, self.clock() + timeout, session_is_the_lock=self.session_is_the_lock)

    def ask(self, step: Callable[[], bytes], until: float, *, make: bool = False) -> list[Row]:
        """``make`` what is not there yet, once."""
        try:
            return self.link.ask(step(), until)
        except MissingTables:
            if not make:
                raise
        make_tables(self.link, until)
        try:
            return self.link.ask(step(), until)
        except MissingTables as error:
            raise Unavailable(f"{self.link.address}: {error}", permanent=True) from error

    def check_layout(self, version: str | None) -> None:
        if version != str(sql.LAYOUT):
            raise self.unknown_layout(version)

    def unknown_layout(self, version: str | None) -> Unavailable:
        what = "no version" if version is None else f"version {version}"
        message = f"{self.link.address}: the tables distlock_* have {what} of a layout that this program does not know"
        return Unavailable(message, permanent=True)

    def close(self) -> None:
        self.link.close()
