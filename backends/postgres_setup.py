"""What has to be at a server before the first lock, and what of its settings does not go with correctness locks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import postgres_sql as sql
from .base import Refused

if TYPE_CHECKING:
    from .postgres_link import Link

_NEEDED = {
    "distlock_layout": ("SELECT",),
    "distlock_lock": ("SELECT", "INSERT", "UPDATE"),
    "distlock_waiter": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "distlock_mark": ("SELECT", "INSERT", "UPDATE", "DELETE"),
}
_SEVERAL = {"distlock_holder": ("SELECT", "INSERT", "UPDATE", "DELETE")}
_TABLES = (*_NEEDED, *_SEVERAL, "distlock_fence")
"""Who locks needs no right on the last one, and on the holders only with --max-holders."""
_ADDED = "distlock_fence", "used_at"
"""A column that the first versions of the table did not have."""


def make_tables(link: Link, until: float) -> None:
    """If they are not all there. Two who do it at once both succeed. Raises Unavailable, Refused."""
    names = ", ".join(f"(to_regclass('public.{table}'))" for table in _TABLES)
    added = f"attrelid = to_regclass('public.{_ADDED[0]}') AND attname = '{_ADDED[1]}'"
    look = f"""SELECT count(*) + (SELECT count(*) FROM pg_attribute WHERE {added})
        FROM (VALUES {names}) AS t (oid) WHERE oid IS NOT NULL"""
    if link.ask(look.encode(), until) == [(str(len(_TABLES) + 1),)]:
        return
    try:
        link.ask(sql.statement("tables", key=str(sql.MAKING)), until)
    except Refused as error:
        raise Refused(
            f"{error}; without the right to make tables in the schema public, have `distlock init` run by a role that"
            " has it"
        ) from error


def privileges_missing(link: Link, until: float, *, several: bool = False) -> list[str]:
    """For plain locks, or what it takes beside that for several holders."""
    checks = [
        f"('{right} on {table}', has_table_privilege('public.{table}', '{right}'))"
        for table, rights in (_SEVERAL if several else _NEEDED).items()
        for right in rights
    ]
    rows = link.ask(f"SELECT t.what FROM (VALUES {', '.join(checks)}) AS t (what, has) WHERE NOT has".encode(), until)
    return [what for (what,) in rows if what]


def shortcomings(link: Link, until: float) -> tuple[str, ...]:
    (row,) = link.ask(sql.statement("settings"), until)
    fsync, full_page_writes, unlogged, asynchronous, unseen = row
    found = []
    if fsync != "on":
        found.append("fsync is off, so a crash can forget who holds a lock")
    if full_page_writes != "on":
        found.append("full_page_writes is off, so a crash can damage the tables")
    if unlogged == "t":
        found.append("a table distlock_* is not logged, so a crash empties it")
    if asynchronous:
        found.append(f"asynchronous standbys ({asynchronous}), so a failover can forget who holds a lock")
    if unseen != "0":
        found.append(f"{unseen} standbys of which this role may not see whether they are synchronous: GRANT pg_monitor")
    return tuple(found)
