"""What there is to complete: the commands and options of the application, as its own parser knows them."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

import typer.main

from distlock.cli.main import build_app

STOP_SIGNALS = [name for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL") if f"SIG{name}" in dir(signal)]


@dataclass(frozen=True)
class Option:
    words: tuple[str, ...]
    help: str
    metavar: str
    """Empty for a flag."""
    repeats: bool = False

    @property
    def shorts(self) -> list[str]:
        return [word for word in self.words if not word.startswith("--")]

    @property
    def longs(self) -> list[str]:
        return [word for word in self.words if word.startswith("--")]

    @property
    def values(self) -> list[str]:
        """The words that can be offered as its value: those that are lower case stand for themselves."""
        if self.metavar == "SIG":
            return STOP_SIGNALS
        if "URL" in self.metavar and "FILE" not in self.metavar:
            return ["local:"]
        return [word for word in self.metavar.split("|") if word.islower()]

    @property
    def files(self) -> bool:
        return "FILE" in self.metavar.split("|")

    @property
    def locks(self) -> bool:
        return self.metavar == "NAME"


@dataclass(frozen=True)
class Command:
    name: str
    help: str
    options: tuple[Option, ...]
    positional: tuple[str, ...]
    """Of each argument: lock, locks, command, text, or the one word that it may be."""

    @property
    def flags(self) -> list[str]:
        return [word for option in self.options if not option.metavar for word in option.words]

    @property
    def valued(self) -> list[str]:
        return [word for option in self.options if option.metavar for word in option.words]


def sentence(text: str) -> str:
    """The first one, short enough for one line of a menu."""
    first = " ".join(text.split()).partition(". ")[0].rstrip(".…, ")
    return first if len(first) <= 78 else first.partition(":")[0].partition(";")[0]


def option_of(parameter: Any) -> Option:
    valued = not (parameter.is_flag or parameter.count)
    metavar = (parameter.metavar or parameter.type.name.upper()) if valued else ""
    # Those of --help come from a set, in any order.
    words = sorted((*parameter.opts, *parameter.secondary_opts), key=lambda word: word.startswith("--"))
    return Option(tuple(words), sentence(parameter.help or ""), metavar, bool(parameter.count))


def positional_of(parameter: Any) -> str:
    metavar = parameter.metavar or parameter.name.upper()
    if "COMMAND" in metavar:
        return "command"
    if metavar in ("NAME", "[NAME]"):
        return "lock"
    if "PATTERN" in metavar or metavar in ("NAME...", "[NAME]..."):
        return "locks"
    return metavar.strip("[]") if metavar.strip("[]").islower() else "text"


def command_of(name: str, command: Any, parent: Any) -> Command:
    with command.make_context(name, [], parent=parent, resilient_parsing=True) as context:
        parameters = command.get_params(context)
    return Command(
        name,
        sentence(command.help or ""),
        tuple(option_of(p) for p in parameters if hasattr(p, "is_flag") and not p.hidden),
        tuple(positional_of(p) for p in parameters if not hasattr(p, "is_flag")),
    )


def application() -> list[Command]:
    """The top level, whose name is empty, and its commands. Hidden ones and hidden options are nobody's to complete."""
    top = typer.main.get_command(build_app())
    context = top.make_context("distlock", [], resilient_parsing=True)
    commands = top.commands  # type: ignore[attr-defined]
    return [
        command_of("", top, None),
        *(command_of(name, command, context) for name, command in commands.items() if not command.hidden),
    ]
