"""The directory of the lock databases: whose it is, who shares it, and whether its file system can lock.

A private directory belongs to one user and is 0700 if we make it. A group-writable one is shared by its group. A
world-writable one would let anybody free anybody's locks. Network file systems are refused: SQLite's locking on them
ends in corruption, and a lock that not every client sees is no lock.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

from .base import ConfigurationError, DistlockError, Refused, Unavailable

# fmt: off
NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
    "nfs4", "ocfs2", "orangefs", "smb3", "smbfs", "virtiofs",
})
# fmt: on
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs"})  # fuseblk (ntfs-3g and the like) is not "fuse." at all


def failure(path: Path, error: OSError) -> DistlockError:
    """What an operating system error on a lock file or directory means to the user, in one line."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return Refused(f"{path}: permission denied for uid {os.geteuid()}{_owner(path)}")
    if error.errno == errno.EROFS:
        return Unavailable(f"{path}: read-only file system", permanent=True)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(f"{path}: no space left to store the lock")
    return Unavailable(f"{path}: {error.strerror}")


def _owner(path: Path) -> str:
    """Names the first of the path and its parents that another uid owns; that is nearly always the reason."""
    for candidate in (path, *path.parents):
        try:
            uid = candidate.stat().st_uid
        except OSError:
            continue
        return f"; {candidate} belongs to uid {uid}" if uid != os.geteuid() else ""
    return ""


def percent_decoded(path: str) -> str:
    """By hand: urllib.parse costs 6 ms to import. Raises ValueError."""
    head, *rest = os.fsencode(path).split(b"%")
    if any(re.fullmatch(rb"[0-9A-Fa-f]{2}", part[:2]) is None for part in rest):
        raise ValueError(path)
    return os.fsdecode(head + b"".join(bytes.fromhex(part[:2].decode()) + part[2:] for part in rest))


def make_directory(directory: Path) -> None:
    """mkdir -p, each new one with mode 0700 whatever the umask."""
    missing = []
    for candidate in (directory, *directory.parents):
        if candidate.exists():
            break
        missing.append(candidate)
    for candidate in reversed(missing):
        try:
            candidate.mkdir(0o700)
        except FileExistsError:
            continue  # somebody else's start was faster
        candidate.chmod(0o700)


def check_directory(directory: Path, mountinfo: str) -> os.stat_result:
    """Refuse a directory in which locks would not be safe. ``mountinfo`` is the text of /proc/self/mountinfo."""
    found = directory.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigurationError(f"{directory} is not a directory")
    kind = file_system(directory.resolve(), mountinfo)
    if is_network(kind):
        raise ConfigurationError(f"{directory} is on a network file system ({kind}), where local locks do not hold")
    if found.st_mode & stat.S_IWOTH:
        raise ConfigurationError(f"{directory} is writable by everybody; chmod o-w {directory}")
    me = os.geteuid()
    if is_shared(found):
        if not found.st_mode & stat.S_ISGID and me != 0 and found.st_gid != os.getegid():
            raise ConfigurationError(
                f"{directory} is shared by group {found.st_gid}, but new files would not be: chmod g+s {directory}"
            )
    elif found.st_uid not in (0, me):
        raise Refused(f"{directory} belongs to uid {found.st_uid}, we are uid {me}, and its group does not share it")
    return found


def is_network(kind: str) -> bool:
    """Whether this type of file system is one, or may be."""
    return kind in NETWORK_FILE_SYSTEMS or (kind.startswith("fuse.") and kind not in LOCAL_FUSE)


def is_shared(directory: os.stat_result) -> bool:
    return bool(directory.st_mode & stat.S_IWGRP)


def shared_group(directory: os.stat_result) -> int | None:
    return directory.st_gid if is_shared(directory) else None


def file_system(path: Path, mountinfo: str) -> str:
    """The type of the file system that a resolved path is on: that of its longest mount point, the last if several
    are mounted there ('' if unknown)."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), left.split(" ")[4])
        if len(point) >= best and path.is_relative_to(point):
            best, kind = len(point), right.split(" ")[0]
    return kind


def directory_of(url: str) -> Path:
    """What ``local:///DIRECTORY`` names. Raises ConfigurationError."""
    path = url.removeprefix("local://")
    problem = ConfigurationError(f"{url!r}: a local backend is local: or local:///DIRECTORY")
    if path == url or not path.startswith("/") or not path.strip("/") or "?" in path or "#" in path:
        raise problem
    try:
        directory = Path(percent_decoded(path))
    except ValueError:
        raise problem from None
    if "\0" in str(directory):
        raise problem
    return directory
