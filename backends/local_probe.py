"""Whether a directory is fit to keep locks."""

from __future__ import annotations

import os
import sqlite3
import stat
from typing import TYPE_CHECKING

from .local_directory import failure, file_system, is_network, is_shared
from .probe import Finding, Probe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROOM = 32 * 2**20
"""Bytes; a lock in use has up to 1.1 MB."""
FILES = 1000


def probe(directory: Path, mountinfo: str) -> Probe:
    """``mountinfo`` is the text of /proc/self/mountinfo. Raises Unavailable, Refused."""
    there = directory
    try:
        there = next(candidate for candidate in (directory, *directory.parents) if candidate.exists())
        found, room, kind = there.stat(), os.statvfs(there), file_system(there.resolve(), mountinfo)
    except OSError as error:
        raise failure(there, error) from error
    findings = (
        *_mounted(there, kind, room),
        *(_owned(directory, found) if there == directory else ()),
        *_room(there, room),
    )
    new = "" if there == directory else ", not made yet"
    server = f"SQLite {sqlite3.sqlite_version} in {directory} ({kind or 'unknown file system'}{new})"
    return Probe(server, None, findings)


def _mounted(path: Path, kind: str, room: os.statvfs_result) -> Iterator[Finding]:
    if is_network(kind):
        yield Finding(
            "Two hosts can hold the same lock: files lock nothing over a network, so runs refuse it.",
            f"{path} is on {kind}",
            "Use a directory on a disk of this host, or an engine with a server for locks of several hosts.",
        )
    if kind in ("tmpfs", "ramfs"):
        yield Finding(
            "A reboot forgets what was done: --once and --min-interval do not see runs before it.",
            f"{path} is on {kind}",
            "Use a directory on a disk, unless no run has such an option.",
        )
    if room.f_flag & os.ST_RDONLY:
        yield Finding(
            "No lock can be had.", f"{path} is on a read-only file system", "Use a directory that can be written."
        )


def _owned(directory: Path, found: os.stat_result) -> Iterator[Finding]:
    mode, me = stat.S_IMODE(found.st_mode), os.geteuid()
    evidence = f"{directory} has mode {mode:04o}, owner {found.st_uid}, group {found.st_gid}"
    if not stat.S_ISDIR(found.st_mode):
        yield Finding("No lock can be had.", f"{directory} is not a directory", f"Move {directory} out of the way.")
    elif mode & stat.S_IWOTH:
        yield Finding("Any user can free anybody's lock, so runs refuse it.", evidence, f"Run: chmod o-w {directory}")
    elif is_shared(found) and not mode & stat.S_ISGID:
        yield Finding(
            "Locks of one member of the group cannot be opened by the others.", evidence, f"Run: chmod g+s {directory}"
        )
    elif not is_shared(found) and found.st_uid not in (0, me):
        yield Finding(
            "No lock can be had: the directory is another user's, and its group does not share it.",
            evidence,
            "Run as that user, or name a directory of your own.",
        )
    if me != 0 and not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        yield Finding(f"No lock can be had by uid {me}.", evidence, "Give this user the right to write there.")


def _room(path: Path, room: os.statvfs_result) -> Iterator[Finding]:
    remedy = "Make room, or purge locks that are no longer used."
    free = room.f_bavail * room.f_frsize
    if free < ROOM:
        yield Finding(
            "New locks and waiters fail when it is full (exit code 69).",
            f"{free / 2**20:.1f} MB left at {path}",
            remedy,
        )
    if room.f_files > 0 and room.f_favail < FILES:
        yield Finding(
            "New locks fail when it can hold no more files (exit code 69).",
            f"{room.f_favail} files left at {path}",
            remedy,
        )
