"""The configuration as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from .render import print_table, shown

if TYPE_CHECKING:
    from distlock.config_view import Row


def print_config(rows: Sequence[Row]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for title in ("SETTING", "VALUE", "SOURCE"):
        table.add_column(title)
    for row in rows:
        name = f"[{row.table}] {row.key}" if row.table else row.key
        table.add_row(shown(name), shown(_toml(row.value)), shown(row.source))
    print_table(table)


def _toml(value: object) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
