"""The statements, from the files beside this one, and the values that are put into them.

A statement goes out as one message of the simple protocol, values and all. The extended protocol would leave its
transaction open, and a lock's row locked, when the network goes in the middle of it; and what is prepared stays behind
in a pooler's session.
"""

from __future__ import annotations

import hashlib
import math
import re
from functools import cache
from pathlib import Path

LAYOUT = 1
STALE_AFTER = 4.0
"""Seconds after which a waiter that was not seen counts as dead: with two polls missed, and well within 5 s."""

_LIVING = f"""(
        w.seen_at BETWEEN now - interval '{STALE_AFTER} seconds' AND now + interval '{STALE_AFTER} seconds'
        AND (w.backend IS NULL OR EXISTS (SELECT FROM pg_stat_get_activity(w.backend)))
    )"""
"""A stamp of the future is none: the clock was set back since. A session is gone at once with a killed process."""
_ON_DISK = """set_config('synchronous_commit', CASE
        WHEN current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply' ELSE 'on'
    END, true)"""
"""What the transaction has written is on disk before its answer comes, whatever the database's own setting."""
MAKING = 0x646973746C6F636B  # "distlock"
"""The advisory lock under which tables are made."""
PURGING = MAKING + 1
"""The one under which locks are forgotten, and used for the first time."""
_INCLUDED = re.compile(r"^\{postgres_(\w+)\.sql\}$", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9_.-]*")


@cache
def _template(file: str) -> str:
    """``postgres_FILE.sql`` without its comments, and with what it names on a line by itself, {postgres_OTHER.sql}. A
    whole statement ends with a semicolon."""
    lines = (Path(__file__).parent / f"postgres_{file}.sql").read_text().splitlines()
    text = "\n".join(line for line in lines if line and not line.lstrip().startswith("--"))
    return _INCLUDED.sub(lambda found: _template(found[1]), text)


def part(file: str, /, **values: str) -> str:
    """Values are SQL: made by the functions below, or by hand."""
    return _template(file).format(living=_LIVING, layout=LAYOUT, stale_after=STALE_AFTER, on_disk=_ON_DISK, **values)


def statement(file: str, /, **values: str) -> bytes:
    """The same, to be sent."""
    return part(file, **values).encode()


def text(value: str) -> str:
    """Right in whatever way the session reads quotes and backslashes. ASCII only."""
    if _PLAIN.fullmatch(value):
        return f"'{value}'"
    return f"convert_from(decode('{value.encode('ascii').hex()}', 'hex'), 'SQL_ASCII')"


def name_bytes(name: str) -> str:
    return f"decode('{name.encode(errors='backslashreplace').hex()}', 'hex')"


def number(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(value)
    return repr(value)


def channel(kind: str, about: str) -> str:
    """A NOTIFY channel has less than 64 characters, and names and owner ids may have more."""
    return f"distlock_{kind}_{hashlib.blake2b(about.encode(), digest_size=20).hexdigest()}"
