"""``distlock run``: options to a checked plan, the plan to the supervisor, its end to this process's."""

from __future__ import annotations

import os
import signal
import traceback
from typing import Annotated

import typer

from distlock.backend_url import chosen_backend, is_named
from distlock.backends import scheme_of
from distlock.backends.base import Busy, Safety
from distlock.deadline import SHORTEST_TTL, default_grace, longest_grace
from distlock.durations import format_duration, parse_duration
from distlock.environment import inherited
from distlock.errors import NestedRun, UsageError
from distlock.names import parse_name
from distlock.notices import say
from distlock.quoting import quoted
from distlock.requirement import CLASSES, refuse_embedded_default
from distlock.supervise.command import Command, find_command
from distlock.supervise.launch import supervise
from distlock.supervise.plan import DESCENDANTS, Descendants, Plan
from distlock.supervise.signals import Signals, end_like
from distlock.supervise.tree import children

from .exits import CONFLICT

_NO_EFFECT = "As flock's: run does so anyway."


def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The lock.", show_default=False)],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] COMMAND [ARG]... | -c STRING", help="What to run under it.", show_default=False),
    ] = None,
    ttl: Annotated[
        str, typer.Option("--ttl", metavar="D", help="Lease length, at least 3s; renewed every third of it.")
    ] = "30s",
    nonblock: Annotated[bool, typer.Option("-n", "--nonblock", "--nb", help="Do not wait for the lock.")] = False,
    wait: Annotated[
        str | None,
        typer.Option("-w", "--wait", "--timeout", metavar="D", help="Wait at most D; 0 is -n. Default: without limit."),
    ] = None,
    conflict_exit_code: Annotated[
        int,
        typer.Option(
            "-E", "--conflict-exit-code", metavar="N", min=0, max=255, help="Exit code when the lock was not had."
        ),
    ] = CONFLICT,
    backend: Annotated[
        str | None,
        typer.Option("-b", "--backend", metavar="URL", help="Where the lock lives; else DISTLOCK_BACKEND, else local:"),
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(
            "--require",
            metavar="efficiency|correctness",
            help="Refuse a backend of a lower class: correctness if a double run corrupts.",
        ),
    ] = None,
    kill_after: Annotated[
        str | None,
        typer.Option(
            "-k",
            "--kill-after",
            metavar="D",
            help="From the stop signal to SIGKILL when the lease is lost: at most ttl/3. Default: ttl/6, at most 5s.",
        ),
    ] = None,
    kill_signal: Annotated[str, typer.Option("--kill-signal", metavar="SIG", help="The stop signal.")] = "TERM",
    jitter: Annotated[
        str, typer.Option("--jitter", metavar="D", help="Wait a random 0..D before the first attempt.")
    ] = "0",
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", help="Free text shown to whoever waits.")
    ] = None,
    descendants: Annotated[
        str | None,
        typer.Option(
            "--descendants",
            metavar="leave|kill|wait",
            help="What COMMAND left running when it ended. Default: leave it, and say so.",
        ),
    ] = None,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Say more on stderr.")] = 0,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Say less: errors only.")] = False,
    exclusive: Annotated[bool, typer.Option("-x", "-e", "--exclusive", help=_NO_EFFECT)] = False,
    close: Annotated[bool, typer.Option("-o", "--close", help=_NO_EFFECT)] = False,
    shared: Annotated[bool, typer.Option("-s", "--shared", hidden=True)] = False,
    unlock: Annotated[bool, typer.Option("-u", "--unlock", hidden=True)] = False,
    no_fork: Annotated[bool, typer.Option("-F", "--no-fork", hidden=True)] = False,
) -> int:
    """Run COMMAND while holding the lock NAME.

    Takes a lease, starts COMMAND, renews the lease, stops COMMAND if the lease cannot be kept, releases it, and ends
    as COMMAND did. Without the lock COMMAND is not started. Options go before NAME: all behind it is COMMAND's.
    Durations: 30, 30s, 1.5s, 500ms, 5m, 2h, 1d.
    """
    del exclusive, close
    signals = Signals()
    _refuse_flock_only(shared, unlock, no_fork)
    lock = parse_name(name)
    environment = inherited()
    words = _command_words(command or [], environment)
    lease = _duration("--ttl", ttl)
    if lease < SHORTEST_TTL:
        raise UsageError(
            f"--ttl {quoted(ttl)} is too short: below {format_duration(SHORTEST_TTL)} an ordinary pause of a machine "
            "looks like a death"
        )
    waiting = _wait(nonblock, wait)
    verbosity = -1 if quiet else verbose
    # Cron mails what is printed: a lock not waited for is no news, a wait in vain is a job that was missed.
    explain = waiting != 0 or verbosity >= 1 or (verbosity == 0 and os.isatty(2))
    url = chosen_backend(backend)
    scheme_of(url)
    required = _safety(require)
    if required == "correctness" and not is_named(backend):
        refuse_embedded_default()
    plan = Plan(
        name=lock,
        owner=os.urandom(16).hex(),
        command=words,
        caller_environment=environment,
        backend=url,
        require=required,
        ttl=lease,
        wait=waiting,
        explain_conflict=explain,
        grace=_grace(kill_after, lease),
        kill_signal=_signal(kill_signal),
        jitter=_duration("--jitter", jitter),
        label=label,
        descendants=_descendants(descendants),
        verbosity=verbosity,
        strangers=frozenset(children(os.getpid())),
    )
    try:
        status = supervise(plan, signals)
    except NestedRun as conflict:
        say(str(conflict))
        return conflict_exit_code
    except Busy as conflict:
        if explain:
            say(str(conflict))
        return conflict_exit_code
    except Exception:
        if verbose >= 2:
            traceback.print_exc()
        raise
    return end_like(status)


def _refuse_flock_only(shared: bool, unlock: bool, no_fork: bool) -> None:
    if shared:
        raise UsageError("-s, --shared: distlock has exclusive locks only")
    if unlock:
        raise UsageError("-u, --unlock: a lock is released when COMMAND ends")
    if no_fork:
        raise UsageError("-F, --no-fork: distlock must stay beside COMMAND to renew the lease and to stop COMMAND")


def _command_words(words: list[str], environment: dict[bytes, bytes]) -> Command:
    if words and words[0] == "--":
        words = words[1:]
    elif words and words[0] == "-c":
        if len(words) != 2:
            raise UsageError(f"-c takes exactly one argument behind NAME, the command string; {len(words) - 1} given")
        shell = environment.get(b"SHELL") or b"/bin/sh"
        return find_command([shell, b"-c", os.fsencode(words[1])], environment)
    elif words and words[0].startswith("-"):
        raise UsageError(f"{quoted(words[0])}: options go before NAME; a COMMAND that begins with - goes behind --")
    if not words:
        raise UsageError("COMMAND is missing: distlock run [OPTIONS] NAME [--] COMMAND [ARG]...")
    return find_command([os.fsencode(word) for word in words], environment)


def _duration(option: str, text: str) -> float:
    try:
        return parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def _wait(nonblock: bool, wait: str | None) -> float | None:
    limit = None if wait is None else _duration("--wait", wait)
    if nonblock and limit:
        raise UsageError(f"-n and --wait {quoted(wait or '')} contradict each other")
    return 0.0 if nonblock else limit


def _grace(kill_after: str | None, ttl: float) -> float:
    if kill_after is None:
        return default_grace(ttl)
    grace = _duration("--kill-after", kill_after)
    if grace > longest_grace(ttl):
        raise UsageError(
            f"--kill-after {quoted(kill_after)} is more than a third of the TTL "
            f"({format_duration(longest_grace(ttl))}): a longer grace needs a longer --ttl"
        )
    return grace


def _signal(text: str) -> signal.Signals:
    name = text.upper().removeprefix("SIG")
    known = {number.name.removeprefix("SIG"): number for number in signal.Signals}
    found = known.get(name) or next((n for n in known.values() if text == str(int(n))), None)
    if found is None or found in (signal.SIGSTOP, signal.SIGCONT, signal.SIGCHLD):
        raise UsageError(f"--kill-signal: {quoted(text)} is no signal that stops a process; TERM, INT, HUP, … do")
    return found


def _safety(text: str | None) -> Safety | None:
    found = next((known for known in CLASSES if known == text), None)
    if text is not None and found is None:
        raise UsageError(f"--require: {quoted(text)} is none of {', '.join(CLASSES)}")
    return found


def _descendants(text: str | None) -> Descendants | None:
    if text is not None and text not in DESCENDANTS:
        raise UsageError(f"--descendants: {quoted(text)} is none of {', '.join(DESCENDANTS)}")
    return text
