"""Which keys a configuration may have, and what kind of value each takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from .backends.base import ConfigurationError
from .durations import parse_duration
from .errors import UsageError
from .quoting import quoted

Kind = Literal["text", "duration", "flag", "count", "number", "any"]


class Key(NamedTuple):
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    lowest: int | None = None
    highest: int | None = None
    other_names: tuple[str, ...] = ()
    """Names of the same option that are no keys: a setting is written in one way only."""


Keys = Mapping[str, Key]


class Unchecked(dict[str, Key]):
    """Any key with any value: for who uses a few options of ``run`` only. ``run`` itself tells what is wrong."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> Key:
        return Key("any")


TOP: Keys = {"backend": Key()}
TABLES = ("backends", "defaults", "locks", "metrics", "journal")
PROFILE: Keys = {
    "url": Key(),
    "password_file": Key(),
    "ca": Key(),
    "cert": Key(),
    "key": Key(),
    "require": Key(choices=("efficiency", "correctness")),
}
METRICS: Keys = {"textfile": Key()}
JOURNAL: Keys = {
    "enabled": Key("flag"),
    "runs": Key("number", lowest=1, highest=1_000_000),
    "keep": Key("duration"),
}


def check_table(table: object, keys: Keys, where: str) -> dict[str, object]:
    """The table with durations and texts as texts. ``where`` begins each message. Raises ConfigurationError."""
    checked: dict[str, object] = {}
    for name, value in as_table(table, where).items():
        if name not in keys:
            raise unknown(name, keys, where)
        checked[name] = _checked(value, keys[name], f"{where} {name}")
    return checked


def as_table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} is a table, not {_shown(value)}")
    return value


def unknown(name: str, keys: Mapping[str, Key] | Iterable[str], where: str) -> ConfigurationError:
    names = {known: known for known in keys}
    if isinstance(keys, Mapping):
        names |= {other: known for known, key in keys.items() for other in key.other_names}
    near = nearest(name.replace("_", "-"), names) or nearest(name, names)
    hint = f"; did you mean {names[near]}?" if near else f"; known are {', '.join(sorted(set(names.values())))}"
    return ConfigurationError(f"{where}: unknown key {quoted(name)}{hint}")


def nearest(name: str, names: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, list(names), 1, 0.5)), None)


def _checked(value: object, key: Key, where: str) -> object:
    if key.kind == "any":
        return value
    if key.kind == "flag":
        if not isinstance(value, bool):
            raise ConfigurationError(f"{where} is true or false, not {_shown(value)}")
        return value
    if key.kind in ("number", "count"):
        return _number(value, key, where)
    if key.kind == "duration" and isinstance(value, int | float) and not isinstance(value, bool):
        value = repr(value)  # bare numbers are seconds
    if not isinstance(value, str):
        raise ConfigurationError(f"{where} is a text, not {_shown(value)}")
    if key.kind == "duration":
        try:
            parse_duration(value)
        except UsageError as error:
            raise ConfigurationError(f"{where}: {error}") from None
    if key.choices and value not in key.choices:
        raise ConfigurationError(f"{where}: {quoted(value)} is none of {', '.join(key.choices)}")
    if "\0" in value:
        raise ConfigurationError(f"{where} contains a zero byte")
    return value


def _number(value: object, key: Key, where: str) -> int:
    if key.kind == "count" and isinstance(value, bool):
        return int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigurationError(f"{where} is a whole number, not {_shown(value)}")
    lowest, highest = key.lowest or 0, key.highest
    if value < lowest or (highest is not None and value > highest):
        upto = "or more" if highest is None else f"to {highest}"
        raise ConfigurationError(f"{where} is {lowest} {upto}, not {value}")
    return value


def _shown(value: object) -> str:
    """The kind of a value that is none: what it says may be a secret in the wrong place."""
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = {str: "a text", int: "a number", float: "a number", dict: "a table", list: "a list"}
    return kinds.get(type(value), "a date or time")
