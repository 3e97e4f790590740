"""Forgetting locks and registers in PostgreSQL, a page of names at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import postgres_sql as sql
from .base import SUCCESS_KEPT
from .postgres_errors import MissingTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .postgres_link import Row

    Ask = Callable[[bytes], list[Row]]
    """A statement, sent within the time-out of one request. Raises as Link.ask."""

_PAGE = 500
_LOOK = """SELECT (SELECT max(version) FROM public.distlock_layout), encode(name, 'hex') FROM (
    SELECT DISTINCT {column} AS name FROM public.{table} WHERE {column} > {after} ORDER BY name LIMIT {page}
) AS names ORDER BY name"""
_SHARED = (
    "NOT EXISTS (SELECT FROM public.distlock_holder AS h, pg_stat_get_activity(h.backend)"
    " WHERE h.name = lock.name AND h.backend IS NOT NULL)"
)
_HOLDERS = "holders AS (DELETE FROM public.distlock_holder AS h USING unused WHERE h.name = unused.name),"


def forget_locks(
    ask: Ask, check_layout: Callable[[str | None], None], wanted: Callable[[str], bool], unused_for: float
) -> Iterator[str]:
    """Tokens granted later are greater because records made later begin above the greatest that was removed. A distlock
    that knows of no purge gives the server's time in µs instead, which is greater unless the clock was set back."""
    holders = _HOLDERS
    for names in _wanted(ask, check_layout, wanted, "distlock_lock", "name"):

        def purge(names: Sequence[str], holders: str) -> list[Row]:
            return ask(
                sql.statement(
                    "purge",
                    names=_listed(names),
                    unused_for=sql.number(unused_for),
                    key=str(sql.PURGING),
                    success_kept=sql.number(SUCCESS_KEPT),
                    shared=_SHARED if holders else "true",
                    holders=holders,
                )
            )

        try:
            rows = purge(names, holders)
        except MissingTables:
            if not holders:
                raise
            holders = ""  # the tables of an earlier version, in which nobody shares a lock
            rows = purge(names, holders)
        yield from (_name(row[0]) for row in rows if row[0])


def forget_fences(
    ask: Ask, check_layout: Callable[[str | None], None], wanted: Callable[[str], bool], unused_for: float
) -> Iterator[str]:
    """Resources none of whose registers was asked for so long; in tables of an earlier version, which do not know when
    that was, none. Raises MissingTables then."""
    for names in _wanted(ask, check_layout, wanted, "distlock_fence", "resource"):
        rows = ask(sql.statement("purge_fences", names=_listed(names), unused_for=sql.number(unused_for)))
        yield from (_name(row[0]) for row in rows if row[0])


def _wanted(
    ask: Ask, check_layout: Callable[[str | None], None], wanted: Callable[[str], bool], table: str, column: str
) -> Iterator[list[str]]:
    """Names in hexadecimal, by pages. What has no name is none."""
    after = "''"
    while True:
        rows = ask(_LOOK.format(column=column, table=table, after=after, page=_PAGE).encode())
        if rows:
            check_layout(rows[0][0])
        found = [name for _, name in rows if name and wanted(_name(name))]
        if found:
            yield found
        if len(rows) < _PAGE:
            return
        after = _listed([rows[-1][1] or ""])


def _name(hexadecimal: str) -> str:
    return bytes.fromhex(hexadecimal).decode(errors="replace")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"decode('{bytes.fromhex(name).hex()}', 'hex')" for name in names)
