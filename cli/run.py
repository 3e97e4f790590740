"""``distlock run``: options to a checked plan, the plan to the supervisor, its end to this process's."""

from __future__ import annotations

import os
import traceback
from typing import Annotated

import typer

from distlock.backend_choice import choose
from distlock.backends.base import Busy
from distlock.config import load
from distlock.environment import inherited
from distlock.errors import NestedRun, Skipped, UsageError
from distlock.holders import MOST_HOLDERS
from distlock.names import parse_name
from distlock.notices import say
from distlock.quoting import quoted
from distlock.supervise.command import Command, find_command
from distlock.supervise.launch import Launch
from distlock.supervise.signals import end_like

from .exits import CONFLICT
from .plan_of_run import plan_of
from .settings import BACKEND_HELP, ConfigOption, Options, keys_of

_NO_EFFECT = "As flock's: run does so anyway."


def run(
    context: typer.Context,
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
        typer.Option("-b", "--backend", metavar="URL|NAME", help=BACKEND_HELP),
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
    max_run: Annotated[
        str | None, typer.Option("--max-run", metavar="D", help="Stop COMMAND after D; exit 124.")
    ] = None,
    min_hold: Annotated[
        str, typer.Option("--min-hold", metavar="D", help="Keep the lock for at least D, though COMMAND ends sooner.")
    ] = "0",
    min_interval: Annotated[
        str | None,
        typer.Option("--min-interval", metavar="D", help="Skip if the last successful run started less than D ago."),
    ] = None,
    once: Annotated[
        str | None,
        typer.Option("--once", metavar="KEY", help="Skip if done for KEY already: a date, the number of a batch."),
    ] = None,
    once_keep: Annotated[
        str, typer.Option("--once-keep", metavar="D", help="How long what is done for a KEY is remembered.")
    ] = "30d",
    mark: Annotated[
        str,
        typer.Option(
            "--mark", metavar="success|start", help="When --once and --min-interval count: a success, or each start."
        ),
    ] = "success",
    skip_exit_code: Annotated[
        int, typer.Option("--skip-exit-code", metavar="N", min=0, max=255, help="Exit code of a run that was skipped.")
    ] = 0,
    max_holders: Annotated[
        int | None,
        typer.Option(
            "--max-holders",
            metavar="N",
            min=1,
            max=MOST_HOLDERS,
            help="Up to N holders at once; all say the same N.",
        ),
    ] = None,
    fail_open: Annotated[
        bool, typer.Option("--fail-open", help="Run without a lock if the backend cannot be reached, and say so.")
    ] = False,
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
    log_to: Annotated[
        str | None,
        typer.Option(
            "--log-to", metavar="syslog|journal|FILE", help="A line for each event: waiting, granted, lost, released, …"
        ),
    ] = None,
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="text|json", help="Of the lines of --log-to.")
    ] = "text",
    config: ConfigOption = None,
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
    launch: Launch = context.obj
    _refuse_flock_only(shared, unlock, no_fork)
    lock = parse_name(name)
    environment = inherited()
    words = _command_words(command or [], environment)
    settings = load(config, lambda: keys_of(context.command.params))
    options = Options(context, settings, lock)
    plan = plan_of(options, lock, words, environment, choose(backend, settings, lock), launch, settings)
    try:
        status = launch.run(plan)
    except NestedRun as conflict:
        say(str(conflict))
        return options.number("conflict-exit-code")
    except Busy as conflict:
        if plan.explain_conflict:
            say(str(conflict))
        return options.number("conflict-exit-code")
    except Skipped as skipped:
        if plan.verbosity >= 1 or (plan.verbosity == 0 and os.isatty(2)):
            say(str(skipped))
        return options.number("skip-exit-code")
    except Exception:
        if plan.verbosity >= 2:
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
