"""``distlock fence``: the resource's side. What is late is refused, whatever the lock service says."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from distlock.backends.base import ConfigurationError, DistlockError
from distlock.environment import inherited
from distlock.errors import CommandNotExecutable, CommandNotFound, UsageError
from distlock.fence_register import FenceRegister
from distlock.fence_token import parse_token, token_of
from distlock.names import parse_name
from distlock.notices import say
from distlock.quoting import quoted
from distlock.state import state_directory
from distlock.supervise.command import Command, execute, find_command
from distlock.supervise.signals import Signals


def fence(
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="What is protected.", show_default=False)],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND [ARG]...]", help="What to run under the register's lock.", show_default=False
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", metavar="N", help="Default: that of the run around this.")
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", metavar="FILE", help="The register. Default: one in the state directory.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget the tokens seen: after a move to another backend.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Let a fencing token pass, or refuse it (65) if RESOURCE has seen a greater one.

    The greatest token is on disk when this ends. With COMMAND the register stays locked while it or anything that it
    started lives, so that no newer holder gets in between.
    """
    name = _resource(resource)
    path, mode = _register(name, store)
    if reset:
        _reset(path, mode, name, token, command, yes)
        return 0
    number = token_of(os.environ) if token is None else _token(token)
    if not command:
        register = FenceRegister.locked(path, name, mode, lambda: _waiting(name))
        register.advance(number)
        register.close()
        return 0
    signals = Signals()
    environment = inherited()
    found = find_command([os.fsencode(word) for word in command], environment)
    signals.restore_in_child()
    register = FenceRegister.locked(path, name, mode, lambda: _waiting(name))
    register.advance(number)
    os.set_inheritable(register.descriptor, True)
    raise _become(found, environment)


def _become(command: Command, environment: dict[bytes, bytes]) -> DistlockError:
    """This process is COMMAND from here on: its pid, its signals, its exit status, and the lock with it. Returns only
    why it is not."""
    code = execute(command, environment)
    kind = CommandNotFound if code in (errno.ENOENT, errno.ENOTDIR) else CommandNotExecutable
    return kind(f"{command.shown}: {os.strerror(code)}")


def _resource(text: str) -> str:
    try:
        return parse_name(text)
    except UsageError as error:
        raise UsageError(str(error).replace("lock name", "RESOURCE", 1)) from None


def _token(text: str) -> int:
    try:
        return parse_token(text)
    except UsageError as error:
        raise UsageError(f"--token: {error}") from None


def _register(resource: str, store: str | None) -> tuple[Path, int]:
    """Where it is, and the mode of a new one. Holders with an index have one each: their tokens do not compare."""
    index = os.environ.get("DISTLOCK_HOLDER_INDEX", "0")
    if not (index.isascii() and index.isdigit()):
        raise UsageError(f"DISTLOCK_HOLDER_INDEX: {quoted(index)} is not the index of a holder")
    suffix = "" if int(index) == 0 else f".{int(index)}"
    if store is not None:
        if not store:
            raise UsageError("--store '' names no file")
        return Path(store + suffix), 0o666
    folder = state_directory() / "fences"
    try:
        for directory in (folder.parent, folder):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{folder}: {error.strerror}") from error
    return folder / f"{hashlib.sha256(resource.encode()).hexdigest()}.fence{suffix}", 0o600


def _reset(path: Path, mode: int, resource: str, token: str | None, command: list[str] | None, yes: bool) -> None:
    if token is not None or command:
        raise UsageError("--reset forgets all tokens: it goes with neither --token nor COMMAND")
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError("--reset needs --yes where nobody can be asked")
        if not typer.confirm(f"Forget the tokens that {quoted(resource)} has seen?", err=True):
            raise UsageError("nothing was reset")
    register = FenceRegister.locked(path, resource, mode, lambda: _waiting(resource))
    register.reset()
    register.close()


def _waiting(resource: str) -> None:
    if os.isatty(2):
        say(f"{quoted(resource)}: waiting for the command that holds the register")
