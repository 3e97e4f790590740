"""The witness of a lock: how far its record had got, written beside the database after each commit.

A database in WAL mode keeps its last transactions in a second file. If that is lost or damaged SQLite goes back to what
it had before, without a word, and that may be "free" under a living holder. The witness tells: a database that is
behind it is damaged. It is not synced, so it testifies only about the boot that wrote it: after a power loss an older
record is what is to be expected, and nobody is left who could hold the lock.

Writers come here after their commits, in any order, so the witness may lag; it is never ahead of the database.
"""

from __future__ import annotations

import hashlib
import os
import struct

_WITNESS = struct.Struct("<16sQ")
"""Digest of the boot id; the record's number of changes: eight aligned bytes, which are written and read as one."""
SIZE = _WITNESS.size


def testimony(boot: str, changes: int) -> bytes:
    """What the queue file begins with."""
    return _WITNESS.pack(_digest(boot), changes)


def testify(descriptor: int, boot: str, changes: int) -> None:
    """That a record with so many changes has been committed."""
    os.pwrite(descriptor, testimony(boot, changes), 0)


def least(descriptor: int, boot: str) -> int:
    """The number of changes that a transaction which begins now must find at least."""
    written_by, changes = _WITNESS.unpack(os.pread(descriptor, SIZE, 0))
    return changes if written_by == _digest(boot) else 0


def _digest(boot: str) -> bytes:
    return hashlib.blake2b(boot.encode(), digest_size=16).digest()
