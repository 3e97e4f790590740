"""The command: found before the lock is asked for, started once it is held."""

import errno
import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import CommandNotExecutable, CommandNotFound
from ..quoting import quoted
from .cgroup import ControlGroup
from .signals import Signals

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


def start(
    command: Command,
    environment: dict[bytes, bytes],
    signals: Signals,
    *,
    own_group: bool,
    cgroup: ControlGroup | None,
) -> int:
    """Fork and execute; the pid. The child dies with this process, and at once if that is dead already.

    Must be called from a process with one thread: the parent's death signal comes when the THREAD that forked ends,
    and only then is it safe to run Python between fork and exec.
    Raises CommandNotFound, CommandNotExecutable when the exec failed after all.
    """
    from .linux import die_with_parent

    supervisor = os.getpid()
    reading, writing = os.pipe()  # close-on-exec: end of file means that the exec has happened
    pid = os.fork()
    if pid == 0:
        code = errno.ENOEXEC
        try:
            die_with_parent()
            if os.getppid() != supervisor:
                os._exit(125)
            if own_group:
                os.setpgid(0, 0)
            if cgroup:
                cgroup.enter()
            signals.restore_in_child()
            code = _execute(command, environment)
        finally:
            os.write(writing, code.to_bytes(4, "little"))
            os._exit(125)
    os.close(writing)
    if own_group:
        try:
            os.setpgid(pid, pid)  # both do it, so that neither has to wait for the other
        except OSError:
            pass
    answer = os.read(reading, 4)
    os.close(reading)
    if answer:
        os.waitpid(pid, 0)
        code = int.from_bytes(answer, "little")
        kind = CommandNotFound if code in (errno.ENOENT, errno.ENOTDIR) else CommandNotExecutable
        raise kind(f"{command.shown}: {os.strerror(code)}")
    return pid


def _execute(command: Command, environment: dict[bytes, bytes]) -> int:
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
