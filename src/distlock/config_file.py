"""One configuration file: who may have written it, who may read it, and TOML to tables."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from .backend_url import has_secret
from .backends.base import ConfigurationError

_LARGEST = 1 << 20

Value = object
Table = dict[str, Value]


class ConfigFile(NamedTuple):
    path: Path
    tables: Table


def read(path: Path) -> ConfigFile | None:
    """None if there is no such file. Raises ConfigurationError: not readable, not ours, readable by others with a
    secret in it, or broken, with the place."""
    opened = _opened(path)
    if opened is None:
        return None
    found, data = opened
    tables = _parsed(path, data)
    if stat.S_ISREG(found.st_mode) and any(has_secret(url) for url in _urls(tables)):
        refuse_readable(path, found, "it contains a password; chmod it, or put the password into a password_file")
    return ConfigFile(path, tables)


def read_password(path: Path) -> str:
    """The first line of a password file. Raises ConfigurationError."""
    opened = _opened(path)
    if opened is None:
        raise ConfigurationError(f"password_file {path}: no such file")
    found, data = opened
    if stat.S_ISREG(found.st_mode):
        refuse_readable(path, found, "chmod it")
    password = os.fsdecode(data.split(b"\n")[0].removesuffix(b"\r"))
    if not password or "\0" in password:
        raise ConfigurationError(f"password_file {path}: its first line is no password")
    return password


def refuse_readable(path: Path, found: os.stat_result, way_out: str) -> None:
    """As libpq judges key files: root may hand a secret to a group (0640), others keep theirs to themselves (0600)."""
    too_much = 0o007 if found.st_uid == 0 else 0o077
    if found.st_mode & too_much:
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigurationError(f"{path} can be read by others (mode {mode:04o}, uid {found.st_uid}): {way_out}")


def _opened(path: Path) -> tuple[os.stat_result, bytes] | None:
    """Judged by the open descriptor, so that what was looked at is what is read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    found = os.fstat(descriptor)
    if stat.S_ISDIR(found.st_mode):
        os.close(descriptor)
        raise ConfigurationError(f"{path}: is a directory")
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if found.st_uid not in (0, os.geteuid()):
            raise ConfigurationError(
                f"{path} belongs to uid {found.st_uid}; it is read only if it is root's or uid {os.geteuid()}'s"
            )
        if stat.S_ISREG(found.st_mode) and found.st_mode & stat.S_IWOTH:
            raise ConfigurationError(f"{path} can be written by everybody: chmod o-w it")
        try:
            data = b"".join(iter(lambda: file.read(65536), b"")) if found.st_size <= _LARGEST else b""
        except OSError as error:
            raise _unreadable(path, error) from error
    if found.st_size > _LARGEST:
        raise ConfigurationError(f"{path} is larger than {_LARGEST >> 20} MiB")
    return found, data


def _unreadable(path: Path, error: OSError) -> ConfigurationError:
    hint = ""
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = f" for uid {os.geteuid()}; another file can be named with --config or DISTLOCK_CONFIG"
    return ConfigurationError(f"{path}: {(error.strerror or 'unreadable').lower()}{hint}")


def _parsed(path: Path, data: bytes) -> Table:
    import tomllib

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        raise ConfigurationError(f"{path}:{line}:{column}: not UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, place = str(error), re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", str(error))
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
        if place:
            what = what[: place.start()]
            line, column = (int(place[1]), int(place[2])) if place[1] else (line, column)
        raise ConfigurationError(f"{path}:{line}:{column}: {what[:1].lower()}{what[1:]}") from None
    except RecursionError:
        raise ConfigurationError(f"{path}: nested too deeply") from None


def _urls(tables: Table) -> list[str]:
    """Every text that stands where a URL may."""
    found: list[Value] = [tables.get("backend")]
    for name in ("backends", "locks"):
        entries = tables.get(name)
        for entry in entries.values() if isinstance(entries, dict) else ():
            if isinstance(entry, dict):
                found += [entry.get("url"), entry.get("backend")]
    defaults = tables.get("defaults")
    if isinstance(defaults, dict):
        found.append(defaults.get("backend"))
    return [url for url in found if isinstance(url, str)]
