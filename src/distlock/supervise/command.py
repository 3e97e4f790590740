"""The command: looked for before the lock is asked for, executed once it is held."""

import errno
import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import CommandNotExecutable, CommandNotFound
from ..quoting import quoted

_SHELL = b"/bin/sh"
_NOT_FOUND = "command not found"


class Command(NamedTuple):
    """Argument vector as bytes, untouched; ``words[0]`` is looked up in the PATH the command itself will see."""

    words: tuple[bytes, ...]
    search: tuple[bytes, ...]
    """The paths to try in order, as execvp(3) does."""

    @property
    def shown(self) -> str:
        return quoted(os.fsdecode(self.words[0]))


def find_command(words: Sequence[bytes], environment: dict[bytes, bytes]) -> Command:
    """Raises CommandNotFound, CommandNotExecutable."""
    first = words[0]
    if b"/" in first:
        search: tuple[bytes, ...] = (first,)
    else:
        folders = environment.get(b"PATH", os.fsencode(os.defpath)).split(b":")
        search = tuple(os.path.join(folder or b".", first) for folder in folders)
    command = Command(tuple(words), search)
    problems = [_problem(path) for path in search] if first else [_NOT_FOUND]
    if "" in problems:
        return command
    exists = [problem for problem in problems if not problem.startswith(_NOT_FOUND)]
    if exists:  # as execvp(3): EACCES somewhere counts more than ENOENT elsewhere
        raise CommandNotExecutable(f"{command.shown}: {exists[0]}")
    raise CommandNotFound(f"{command.shown}: {max(problems, key=len)}")


def _problem(path: bytes) -> str:
    """Why this path cannot be executed; empty if it can as far as one sees without trying."""
    try:
        mode = os.stat(path).st_mode
    except PermissionError:
        return "permission denied"
    except OSError:
        return f"{_NOT_FOUND} (a dangling link)" if os.path.lexists(path) else _NOT_FOUND
    if stat.S_ISDIR(mode):
        return "is a directory"
    return "" if stat.S_ISREG(mode) and os.access(path, os.X_OK, effective_ids=True) else "is not executable"


def execute(command: Command, environment: dict[bytes, bytes]) -> int:
    """As execvp(3): the first path that works; a text file without #! goes to the shell. Returns only the errno of
    what prevented it."""
    code = errno.ENOENT
    for path in command.search:
        try:
            os.execve(path, list(command.words), environment)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                os.execve(_SHELL, [_SHELL, path, *command.words[1:]], environment)
            elif error.errno in (errno.EACCES, errno.ENOENT, errno.ENOTDIR):
                code = error.errno if code == errno.ENOENT or error.errno == errno.EACCES else code
            else:
                return error.errno or errno.ENOEXEC
    return code
