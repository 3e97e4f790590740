"""The register of one resource in a local file: the greatest fencing token that the resource has seen.

The file is locked with flock(2) from before the comparison until the last process that has it open is gone, so that
nothing newer gets between the comparison and the work that follows. It is written in place, since the lock belongs to
the file and not to its name: two slots, each in a sector of its own with a checksum, and only the one with the smaller
token is ever written. A write that was cut short leaves the other; a token is accepted only when its slot is on disk.
(LMDB keeps its two meta pages in this way.)
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import zlib
from typing import TYPE_CHECKING, Self

from .backends.base import ConfigurationError, Unavailable
from .errors import StaleToken
from .quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LAYOUT = 1
_SECTOR = 512
_SLOTS = (1, 2)
_NOTHING = -1


class FenceRegister:
    """Open and locked. ``descriptor`` may be inherited: the lock lasts as long as any copy of it."""

    def __init__(self, path: Path, resource: str, descriptor: int) -> None:
        self._path = path
        self._resource = resource
        self.descriptor = descriptor

    @classmethod
    def locked(cls, path: Path, resource: str, mode: int, on_waiting: Callable[[], None]) -> Self:
        """Waits without a limit for whoever has it; ``on_waiting`` is called before. Makes the file where there is
        none. Raises ConfigurationError, Unavailable."""
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                _create(path, resource, mode)
                continue
            except OSError as error:
                raise ConfigurationError(f"fence register {quoted(str(path))}: {error.strerror}") from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_waiting()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError as error:
                os.close(descriptor)
                raise ConfigurationError(f"fence register {quoted(str(path))}: flock: {error.strerror}") from error
            if _is_at(descriptor, path):
                return cls(path, resource, descriptor)
            os.close(descriptor)  # it was removed or replaced while we waited

    def greatest(self) -> int | None:
        """The greatest token seen; None if there was none yet. Raises Unavailable if the file is damaged or of a
        layout that this release does not know; ConfigurationError if it is another resource's."""
        self._check_header()
        found = max(self._slot(number) for number in _SLOTS)
        if found < _NOTHING:
            raise self._damaged("neither of its two slots is whole")
        return None if found == _NOTHING else found

    def advance(self, token: int) -> None:
        """Remember ``token``, on disk when this returns. An equal one passes. Raises StaleToken, and what greatest()
        raises."""
        greatest = self.greatest()
        if greatest is not None and token < greatest:
            raise StaleToken(f"{quoted(self._resource)}: token {token} is stale: {greatest} has been seen")
        if token != greatest:
            self._write_slot(min(_SLOTS, key=self._slot), token)

    def reset(self) -> None:
        """Forget every token: for tokens of another backend, which do not compare. Repairs a damaged file."""
        try:
            os.pwrite(self.descriptor, _header(self._resource), 0)
        except OSError as error:
            raise self._unwritable(error) from error
        for number in _SLOTS:
            self._write_slot(number, _NOTHING)

    def close(self) -> None:
        os.close(self.descriptor)

    def _check_header(self) -> None:
        try:
            content = json.loads(os.pread(self.descriptor, _SECTOR, 0))
            layout, resource = content["distlock_fence"], content["resource"]
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged("it does not begin as one") from error
        if layout != _LAYOUT:
            raise Unavailable(f"fence register {self._shown}: layout {layout!r} is not known here", permanent=True)
        if resource != self._resource:
            raise ConfigurationError(f"fence register {self._shown} is that of {quoted(str(resource))}")

    def _slot(self, number: int) -> int:
        """The token in it; less than _NOTHING if it is not whole."""
        data = os.pread(self.descriptor, _SECTOR, number * _SECTOR)
        words = data.split()
        if len(data) == _SECTOR and len(words) == 2 and words[1] == _checksum(words[0]):
            return int(words[0])
        return _NOTHING - 1

    def _write_slot(self, number: int, token: int) -> None:
        try:
            os.pwrite(self.descriptor, _slot(token), number * _SECTOR)
            os.fsync(self.descriptor)
        except OSError as error:
            raise self._unwritable(error) from error

    @property
    def _shown(self) -> str:
        return quoted(str(self._path))

    def _unwritable(self, error: OSError) -> Unavailable:
        return Unavailable(f"fence register {self._shown}: {error.strerror}")

    def _damaged(self, how: str) -> Unavailable:
        return Unavailable(
            f"fence register {self._shown} is damaged: {how}; distlock fence --reset --yes begins anew", permanent=True
        )


def _checksum(word: bytes) -> bytes:
    return b"%08x" % zlib.crc32(word)


def _slot(token: int) -> bytes:
    word = str(token).encode()
    return (word + b" " + _checksum(word)).ljust(_SECTOR - 1) + b"\n"


def _header(resource: str) -> bytes:
    text = json.dumps({"distlock_fence": _LAYOUT, "resource": resource}, ensure_ascii=False)
    return text.encode().ljust(_SECTOR - 1) + b"\n"


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False


def _create(path: Path, resource: str, mode: int) -> None:
    """Whole, or not at all; if somebody else was first, theirs."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            whole = _header(resource) + _slot(_NOTHING) * len(_SLOTS)
            if os.write(descriptor, whole) != len(whole):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
            os.link(new, path)
        except FileExistsError:
            pass
        finally:
            os.close(descriptor)
            os.unlink(new)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigurationError(f"fence register {quoted(str(path))}: {error.strerror}") from error
