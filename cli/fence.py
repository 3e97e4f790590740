"""``distlock fence``: the resource's side. What is late is refused, whatever the lock service says."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distlock.backend_url import masked
from distlock.backends import SCHEMES
from distlock.backends.base import ConfigurationError, DistlockError
from distlock.environment import inherited
from distlock.errors import CommandNotExecutable, CommandNotFound, StaleToken, UsageError
from distlock.fence_register import FenceRegister
from distlock.fence_token import parse_token, token_of
from distlock.holders import MOST_HOLDERS
from distlock.names import parse_name
from distlock.notices import say
from distlock.quoting import quoted
from distlock.state import state_directory
from distlock.supervise.command import Command, execute, find_command
from distlock.supervise.signals import Signals

from .opening import TIMEOUT, opened
from .settings import configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

_COUNTING = 0.5


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
        str | None,
        typer.Option("--store", metavar="FILE|URL|NAME", help="The register; a backend's if hosts share it."),
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget the tokens seen: after a move to another backend.")
    ] = False,
    max_holders: Annotated[
        int | None,
        typer.Option(
            "--max-holders", metavar="N", min=1, max=MOST_HOLDERS, help="With --reset: for each of so many holders."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> int:
    """Let a fencing token pass, or refuse it (65) if RESOURCE has seen a greater one.

    The greatest token is on disk when this ends. With COMMAND the register stays locked while it or anything that it
    started lives, so that no newer holder gets in between.
    """
    name, index = _resource(resource), _index()
    if reset:
        _check_reset(name, token, command, yes)
        _reset(name, store, range(max_holders) if max_holders else (index,))
        return 0
    if max_holders is not None:
        raise UsageError("--max-holders goes with --reset; what a token is compared with, DISTLOCK_HOLDER_INDEX says")
    number = token_of(os.environ) if token is None else _token(token)
    if store is not None and _is_backend(store):
        if command:
            raise UsageError(
                f"COMMAND needs a FILE as the register: nothing can be run under the lock of {masked(store)}"
            )
        _advance_shared(store, name, index, number)
        return 0
    path, mode = _register(name, index, store)
    if not command:
        register = FenceRegister.locked(path, name, mode, lambda: _waiting(name))
        _advance(register, number, name)
        register.close()
        return 0
    signals = Signals()
    environment = inherited()
    found = find_command([os.fsencode(word) for word in command], environment)
    signals.restore_in_child()
    register = FenceRegister.locked(path, name, mode, lambda: _waiting(name))
    _advance(register, number, name)
    os.set_inheritable(register.descriptor, True)
    raise _become(found, environment)


def _advance(register: FenceRegister, token: int, resource: str) -> None:
    """Raises StaleToken, and counts it."""
    try:
        register.advance(token)
    except StaleToken:
        register.close()
        _count_refusal(resource)
        raise


def _count_refusal(resource: str) -> None:
    """For the metrics of this host, as far as that can be written."""
    from .opening import journal_of_this_user

    try:
        journal_of_this_user(busy=_COUNTING).add_refusal(resource)
    except DistlockError:
        pass


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


def _index() -> int:
    """Holders with an index have a register each: their tokens do not compare."""
    index = os.environ.get("DISTLOCK_HOLDER_INDEX", "0")
    if not (index.isascii() and index.isdigit() and len(index) < 5 and int(index) < MOST_HOLDERS):
        raise UsageError(f"DISTLOCK_HOLDER_INDEX: {quoted(index)} is not the index of a holder")
    return int(index)


def _is_backend(store: str) -> bool:
    """A URL, or the name of a backend in the configuration, which can hold the password that a URL here would show to
    everybody. A FILE of such a name is ./NAME."""
    if "://" in store or (store.partition(":")[0] in SCHEMES and ":" in store):
        return True
    return "/" not in store and store in configuration(None).profiles


def _advance_shared(url: str, resource: str, index: int, token: int) -> None:
    """In a backend. Raises StaleToken, and counts it."""
    with opened(url, None) as (engine, _):
        if (greatest := engine.advance_fence(resource, index, token, TIMEOUT)) > token:
            _count_refusal(resource)
            raise StaleToken(f"{quoted(resource)}: token {token} is stale: {greatest} has been seen")


def _reset(resource: str, store: str | None, indexes: Sequence[int]) -> None:
    if store is not None and _is_backend(store):
        with opened(store, None) as (engine, _):
            for index in indexes:
                engine.reset_fence(resource, index, TIMEOUT)
        return
    for index in indexes:
        path, mode = _register(resource, index, store)
        if index == 0 or path.exists():
            register = FenceRegister.locked(path, resource, mode, lambda: _waiting(resource))
            register.reset()
            register.close()


def _register(resource: str, index: int, store: str | None) -> tuple[Path, int]:
    """Where it is, and the mode of a new one."""
    suffix = f".{index}" if index else ""
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


def _check_reset(resource: str, token: str | None, command: list[str] | None, yes: bool) -> None:
    if token is not None or command:
        raise UsageError("--reset forgets all tokens: it goes with neither --token nor COMMAND")
    if not yes:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError("--reset needs --yes where nobody can be asked")
        if not typer.confirm(f"Forget the tokens that {quoted(resource)} has seen?", err=True):
            raise UsageError("nothing was reset")


def _waiting(resource: str) -> None:
    if os.isatty(2):
        say(f"{quoted(resource)}: waiting for the command that holds the register")
