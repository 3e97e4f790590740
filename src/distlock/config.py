"""The configuration: the site's file and over it the user's, or one that was named; merged key by key.

Without a file it is empty, and costs two looks at the disk. What a value means is checked where it is used; here, that
every key is known and every value of its kind.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from .backends.base import ConfigurationError
from .config_file import ConfigFile, read
from .config_keys import JOURNAL, METRICS, PROFILE, TABLES, TOP, Key, Keys, as_table, check_table, nearest, unknown
from .quoting import quoted
from .state import users_path

SITE = Path("/etc/distlock/config.toml")
_NOT_IN_PROFILE_NAMES = frozenset(":/@?#")


class Setting(NamedTuple):
    """A value with where it was set, as messages name it."""

    value: object
    origin: str
    file: Path | None = None
    """None: not from a file."""


def folder_of(setting: Setting) -> Path:
    """What a relative path in it begins at: the folder of the file that says so."""
    return setting.file.parent if setting.file else Path.cwd()


class Layer(NamedTuple):
    """Settings of one table of one file; a later layer counts more."""

    pattern: str | None
    """Of a lock's name; None in [defaults]."""
    settings: dict[str, Setting]


class Config(NamedTuple):
    files: tuple[Path, ...] = ()
    backend: Setting | None = None
    profiles: dict[str, dict[str, Setting]] = {}  # noqa: RUF012 - never changed
    layers: tuple[Layer, ...] = ()
    metrics: dict[str, Setting] = {}  # noqa: RUF012
    journal: dict[str, Setting] = {}  # noqa: RUF012

    def layers_for(self, lock: str | None) -> list[Layer]:
        """[defaults], then the [locks] whose pattern matches, the one that counts most last. None: no lock's."""
        return [
            layer
            for layer in self.layers
            if layer.pattern is None or (lock is not None and fnmatch.fnmatchcase(lock, layer.pattern))
        ]

    def setting(self, key: str, lock: str | None) -> Setting | None:
        return next((layer.settings[key] for layer in reversed(self.layers_for(lock)) if key in layer.settings), None)


def named_file(option: str | None) -> str | None:
    """--config, then DISTLOCK_CONFIG; empty is unset."""
    return option or os.environ.get("DISTLOCK_CONFIG") or None


def user_file() -> Path | None:
    """None for a user without a home."""
    from platformdirs import user_config_path

    folder = users_path(user_config_path, ".config")
    return folder / "config.toml" if folder else None


def load(option: str | None, run_keys: Callable[[], Keys]) -> Config:
    """``run_keys`` gives the options of ``run``; asked for only if there is a file. Raises ConfigurationError."""
    named = named_file(option)
    if named is not None:
        path = Path(os.path.abspath(named))
        file = read(path)
        if file is None:
            raise ConfigurationError(f"{path}: no such configuration file")
        return merged([file], run_keys())
    paths = [SITE]
    # A home that we may not look into is another user's (sudo, setpriv): so would the file be.
    if (own := user_file()) and os.access(own.parent, os.X_OK, effective_ids=True):
        paths.append(own)
    files = [file for path in paths if (file := read(path))]
    return merged(files, run_keys()) if files else Config()


def merged(files: list[ConfigFile], run_keys: Keys) -> Config:
    """The later file counts more. Raises ConfigurationError."""
    backend: Setting | None = None
    profiles: dict[str, dict[str, Setting]] = {}
    defaults: list[Layer] = []
    locks: list[Layer] = []
    metrics: dict[str, Setting] = {}
    journal: dict[str, Setting] = {}
    for file in files:
        path, tables = file.path, dict(file.tables)
        top = {name: value for name, value in tables.items() if name not in TABLES}
        known_at_top: dict[str, Key] = dict(TOP) | {name: Key() for name in TABLES}
        for name in top:
            if name not in TOP:
                raise unknown(name, known_at_top, str(path))
        backend = _settings(path, "", top, TOP).get("backend", backend)
        for name, table in as_table(tables.get("backends", {}), f"{path}: backends").items():
            if not name or not name.isprintable() or set(name) & _NOT_IN_PROFILE_NAMES or name.startswith("-"):
                raise ConfigurationError(f"{path}: {quoted(name)} is no name for a backend: it could be a URL")
            where = f"[backends.{name}]"
            profiles[name] = profiles.get(name, {}) | _settings(path, where, table, PROFILE)
        defaults.append(Layer(None, _settings(path, "[defaults]", tables.get("defaults", {}), run_keys)))
        for pattern, table in as_table(tables.get("locks", {}), f"{path}: locks").items():
            locks.append(Layer(pattern, _settings(path, f'[locks."{pattern}"]', table, run_keys)))
        metrics |= _settings(path, "[metrics]", tables.get("metrics", {}), METRICS)
        journal |= _settings(path, "[journal]", tables.get("journal", {}), JOURNAL)
    for name, profile in profiles.items():
        if "url" not in profile:
            last = next((setting.file for setting in profile.values()), files[-1].path)
            raise ConfigurationError(f"{last}: [backends.{name}] has no url")
    return Config(tuple(file.path for file in files), backend, profiles, (*defaults, *locks), metrics, journal)


def _settings(path: Path, table: str, values: object, keys: Keys) -> dict[str, Setting]:
    where = f"{path}: {table}" if table else f"{path}:"
    return {name: Setting(value, f"{where} {name}", path) for name, value in check_table(values, keys, where).items()}


def no_such_profile(name: str, config: Config) -> ConfigurationError:
    """A word without a colon that names no profile."""
    if "@" in name:  # a mistyped URL, perhaps with a password
        return ConfigurationError("no backend: it is neither a URL nor the name of one in the configuration")
    near = nearest(name, config.profiles)
    if near:
        hint = f"did you mean {near}?"
    elif config.profiles:
        hint = f"known are {', '.join(config.profiles)}"
    else:
        hint = "no configuration defines one; a URL has a colon, as in local: or redis://HOST"
    return ConfigurationError(f"no backend is named {quoted(name)}; {hint}")
