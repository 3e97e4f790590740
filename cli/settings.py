"""Options of ``run`` with the configuration below them: which value counts, and who gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperOption

from distlock.backends.base import ConfigurationError, DistlockError
from distlock.config import Config, Setting, load
from distlock.config_keys import Key, Keys, Kind
from distlock.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

ConfigOption = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="The configuration, instead of the site's and the user's."),
]

BACKEND_HELP = "Where the lock lives; else DISTLOCK_BACKEND, else the configuration's, else local:"

_NOT_IN_A_FILE = frozenset({"config", "help", "exclusive", "close"})
"""Options of run that are no settings: what says where the settings are, and what has no effect."""


def _may_stand_in_a_file(parameters: Sequence[object]) -> dict[str, TyperOption]:
    """By their first long names, from the parser's own list."""
    return {
        next(word.removeprefix("--") for word in option.opts if word.startswith("--")): option
        for option in parameters
        if isinstance(option, TyperOption) and not option.hidden and option.name not in _NOT_IN_A_FILE
    }


def keys_of(parameters: Sequence[object]) -> Keys:
    """The options that a configuration may set, and what values they take."""
    return {key: _key(option) for key, option in _may_stand_in_a_file(parameters).items()}


def settings_of_run() -> dict[str, tuple[Key, object, str]]:
    """Each with its default and what --help says."""
    found = _may_stand_in_a_file(_parameters_of_run())
    return {key: (_key(option), option.default, option.help or "") for key, option in found.items()}


def _key(option: TyperOption) -> Key:
    metavar = option.metavar or ""
    return Key(
        _kind(option),
        tuple(metavar.split("|")) if "|" in metavar and metavar.islower() else (),
        getattr(option.type, "min", None),
        getattr(option.type, "max", None),
        tuple(word.removeprefix("--") for word in option.opts if word.startswith("--"))[1:],
    )


def _kind(option: TyperOption) -> Kind:
    if option.count:
        return "count"
    if option.is_flag:
        return "flag"
    if option.metavar == "D":
        return "duration"
    return "number" if option.type.name.startswith("int") else "text"


def configuration(option: str | None) -> Config:
    """For the commands besides ``run``, which has its parser at hand."""
    return load(option, lambda: keys_of(_parameters_of_run()))


def _parameters_of_run() -> Sequence[object]:
    from .main import build_app

    group = typer.main.get_command(build_app(("run",)))
    parameters: Sequence[object] = group.commands["run"].params  # type: ignore[attr-defined]
    return parameters


class Options:
    """The options of one ``run``. Command line, then [locks], then [defaults], then what the parser knows."""

    def __init__(self, context: typer.Context, config: Config, lock: str) -> None:
        self._context = context
        layers = [layer.settings for layer in config.layers_for(lock)]
        self._levels = [self._typed(), *reversed(layers)]

    def _typed(self) -> dict[str, Setting]:
        typed: dict[str, Setting] = {}
        for parameter in self._context.command.params:
            source = self._context.get_parameter_source(parameter.name or "")
            if source is not None and source.name == "COMMANDLINE" and parameter.name:
                key = parameter.name.replace("_", "-")
                typed[key] = Setting(self._context.params[parameter.name], f"--{key}")
        return typed

    def get(self, key: str) -> Setting:
        """A setting that nobody made has the parser's default, which may be None."""
        found = next((level[key] for level in self._levels if key in level), None)
        return found or Setting(self._context.params[key.replace("-", "_")], f"--{key}")

    def first_with(self, *keys: str) -> dict[str, Setting]:
        """Of options that exclude each other: those at the one level that counts most and has any."""
        for level in self._levels:
            if found := {key: level[key] for key in keys if key in level}:
                return found
        return {}

    def text(self, key: str) -> str | None:
        value = self.get(key).value
        return None if value is None else str(value)

    def number(self, key: str) -> int:
        return int(str(self.get(key).value))


def fault(setting: Setting, message: str) -> DistlockError:
    """What is wrong with a value is a fault of the command line or of a file, whichever it is from."""
    return ConfigurationError(message) if setting.file else UsageError(message)
