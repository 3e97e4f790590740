"""``distlock release``: an operator takes a lock away."""

from __future__ import annotations

import os
import pwd
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from distlock.backends.base import Busy
from distlock.durations import format_duration
from distlock.errors import StaleToken, UsageError
from distlock.fence_token import parse_token
from distlock.holders import describe, each_holder
from distlock.names import parse_name
from distlock.quoting import quoted

from .opening import TIMEOUT, BackendOption, opened
from .settings import ConfigOption

if TYPE_CHECKING:
    from distlock.backends.base import Backend, LockState

_LOOK = 0.2
"""Seconds between two looks at a lease that is to end."""
_LATER = 5.0


def release(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    token: Annotated[
        str | None, typer.Option("--token", metavar="N", help="The holder's, as status shows it: no other is touched.")
    ] = None,
    owner: Annotated[
        str | None, typer.Option("--owner", metavar="ID", help="The holder's, where the backend gives no tokens.")
    ] = None,
    now: Annotated[
        bool, typer.Option("--now", help="Free the lock at once, though the holder's command may still run.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    backend: BackendOption = None,
    config: ConfigOption = None,
) -> int:
    """Take a lock away from the holder with this token; if it has another by now, nothing is done (65).

    The holder's command is stopped, with code 76, and the lock is free as soon as that is dead, or its TTL is over;
    this waits for it and says which. With --now the lock is free at once, and two commands may run.
    """
    lock = parse_name(name)
    number = _token(token, owner)
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError("release needs --yes where nobody can be asked")
    with opened(backend, config, lock) as (engine, _):
        state = engine.inspect(lock, TIMEOUT)
        meant = _meant(state, number, owner)
        if not yes:
            _ask(meant or state, now)
        if not engine.revoke(lock, number, owner, _who(), TIMEOUT, now=now):
            state = engine.inspect(lock, TIMEOUT)
            if not state.held:
                raise StaleToken(f"{quoted(lock)}: nobody holds it; nothing was done")
            what = f"token {number}" if owner is None else f"owner {quoted(owner)}"
            nobody = "its holder has not" if state.max_holders == 1 else "none of its holders has"
            raise StaleToken(f"{quoted(lock)}: {nobody} {what}: {describe(state)}; nothing was done")
        if now:
            print("freed at once; the command of its holder may still run until its next renewal")
        else:
            print(_wait(engine, meant or state))
    return 0


def _token(token: str | None, owner: str | None) -> int | None:
    if (token is None) == (owner is None):
        raise UsageError("name the holder that is meant, with --token N as status shows it; --owner ID if it has none")
    try:
        return None if token is None else parse_token(token)
    except UsageError as error:
        raise UsageError(f"--token: {error}") from None


def _meant(state: LockState, token: int | None, owner: str | None) -> LockState | None:
    """The lock as if it were this holder's alone; None if there is none."""
    for _, one in each_holder(state):
        if (one.token == token) if owner is None else (one.holder is not None and one.holder.owner == owner):
            return one._replace(max_holders=1, holdings=())
    return None


def _ask(state: LockState, now: bool) -> None:
    what = "Free it at once, though its command may go on" if now else "Stop its command and free it"
    if not typer.confirm(f"{quoted(state.name)}: {describe(state)}. {what}?", err=True):
        raise UsageError("nothing was done")


def _who() -> str:
    """For the line that the holder's operator reads. One word: engines store it as a part of a line."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        user = str(os.geteuid())
    return f"{user}@{os.uname().nodename}".replace(" ", "_").encode(errors="backslashreplace").decode()


def _wait(engine: Backend, state: LockState) -> str:
    """Until the lease of this one holder has ended: how it did."""
    if state.kept:
        return "freed: it was kept, and nobody ran under it"
    owner = state.holder.owner if state.holder else ""
    begun = time.monotonic()
    ends = begun + (state.expires_in or 0.0)
    left: LockState | None = state
    while left is not None and left.holder is not None:
        ends = time.monotonic() + (left.expires_in or 0.0)
        if time.monotonic() > begun + (left.ttl or 0.0) + _LATER:
            raise Busy(f"{quoted(state.name)}: its holder keeps it though it was revoked; --now frees it at once")
        time.sleep(_LOOK)
        left = _meant(engine.inspect(state.name, TIMEOUT), None, owner)
    took = format_duration(round(time.monotonic() - begun, 1))
    if time.monotonic() < ends - _LOOK:
        return f"freed after {took}: the command of its holder was stopped, and it was given back"
    return f"freed after {took}: its TTL ran out"
