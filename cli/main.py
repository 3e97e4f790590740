"""Entry point: the application, and the one place that turns an error into a line and an exit code."""

from __future__ import annotations

import errno
import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    import typer

    from distlock.supervise.launch import Launch

_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

COMMANDS = (
    "run",
    "check",
    "fence",
    "status",
    "inspect",
    "release",
    "drill",
    "doctor",
    "purge",
    "backends",
    "config",
    "init",
    "history",
    "metrics",
    "locknames",
)
"""Each is a function of the same name in a module of the same name."""

HIDDEN = frozenset({"locknames"})
"""For programs of our own, not in --help."""


def build_app(commands: Sequence[str] = COMMANDS) -> typer.Typer:
    """The application; with fewer commands it starts faster."""
    import typer

    from distlock import __version__

    from .exits import epilog

    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="flock(1) for a fleet: run a command under a lock that many machines share.",
        epilog=epilog(),
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            from .versions import installed

            print(f"distlock {__version__}", *installed(), sep="\n")
            raise typer.Exit

    @app.callback()
    def distlock(
        version: bool = typer.Option(
            False, "-V", "--version", callback=show_version, is_eager=True, help="Show the versions and exit."
        ),
    ) -> None:
        pass

    for name in commands:
        command = getattr(import_module(f".{name}", __package__), name)
        # Behind the NAME of a run everything is the child's.
        settings = {"allow_interspersed_args": name != "run"}
        app.command(name, context_settings=settings, epilog=epilog(), hidden=name in HIDDEN)(command)
    return app


def main() -> NoReturn:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # die of Ctrl-C as any program: no KeyboardInterrupt anywhere
    from distlock.notices import say

    from .exits import INTERNAL

    if sys.platform != "linux":
        say(f"distlock runs on Linux; this is {sys.platform}")
        sys.exit(78)
    os.environ.pop("_DISTLOCK_COMPLETE", None)  # typer would act on it, and start nothing
    code = _quick(sys.argv[1:])
    if code is None:
        code = _run(sys.argv[1:])
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        pass  # its reader has seen enough
    except OSError as error:
        say(f"cannot write the answer: {error.strerror}")
        code = code or INTERNAL
    os._exit(code)


def _quick(arguments: list[str]) -> int | None:
    """What does without the application; None for all else, and where something is unexpected."""
    if arguments[:1] != ["check"]:
        return None
    from distlock.backends.base import DistlockError
    from distlock.notices import say

    from .exits import code_of
    from .quick_check import check_file, need_in

    understood, need = need_in(arguments[1:])
    if not understood:
        return None
    try:
        check_file(need)
    except DistlockError as error:
        say(str(error))
        return code_of(error)
    return 0


def _run(arguments: list[str]) -> int:
    if arguments[:1] != ["run"]:
        if sys.stdout is None:  # closed by the caller, who wants the code alone
            _answer_nobody()
        return _answer(arguments, None)
    from distlock.notices import say
    from distlock.supervise.launch import Launch

    from .exits import INTERNAL

    try:
        launch = Launch()  # before anything large is loaded
    except OSError as error:
        say(f"internal error: cannot start a process: {error.strerror}")
        return INTERNAL
    try:
        return _answer(arguments, launch)
    finally:
        launch.dismiss()


def _answer(arguments: list[str], launch: Launch | None) -> int:
    import typer

    from distlock.backends.base import DistlockError
    from distlock.notices import say

    from .exits import INTERNAL, USAGE, code_of

    try:
        app = build_app(arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS)
        result = app(arguments, prog_name="distlock", standalone_mode=False, obj=launch)
    except typer.TyperException as error:
        say(f"{error.format_message().rstrip('.')}; see distlock --help")
        return error.exit_code
    except typer.Abort:
        say("nothing was done: no answer")
        return USAGE
    except DistlockError as error:
        say(str(error))
        return code_of(error)
    except BrokenPipeError:
        return 0  # whoever read the answer has seen enough
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            return _internal(error, arguments)
        say(f"cannot write the answer: {error.strerror}")
        _answer_nobody()  # what is left of it would fail once more
        return INTERNAL
    except Exception as error:  # noqa: BLE001 - users get one line and a code, never a traceback
        return _internal(error, arguments)
    return result if isinstance(result, int) else 0


def _answer_nobody() -> None:
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end


def _internal(error: Exception, arguments: list[str]) -> int:
    from distlock.notices import say

    from .exits import INTERNAL

    where = "; -vv shows where" if arguments[:1] == ["run"] else ""
    say(f"internal error: {type(error).__name__}: {error}{where}")
    return INTERNAL
