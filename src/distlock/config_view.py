"""The configuration as operators see it: each value with where it was set, and nothing secret. The keys of the rows are
a promise, as in lock_view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .backend_choice import Chosen
from .backend_url import masked, password
from .config import Config, Setting

VERSION = 1
BUILT_IN = "default"

Shown = str | int | float | bool | None


class Row(NamedTuple):
    table: str
    key: str
    value: Shown
    source: str
    """What set it: a file, a variable, or ``default``."""


def rows(config: Config, chosen: Chosen, defaults: Mapping[str, object], lock: str | None) -> Iterator[Row]:
    """``defaults`` are the options of ``run`` that a file may set, with the values they have without. With a lock's
    name they are what counts for that lock, without one [defaults] and each of [locks]."""
    yield Row("", "backend", chosen.shown, _file_of(chosen.origin))
    if chosen.password is not None:
        profile = config.profiles.get(chosen.shown, {})
        file = profile["password_file"].file if "password_file" in profile and password() is None else None
        yield Row("", "password", "***", str(file or "DISTLOCK_PASSWORD"))
    for name, profile in config.profiles.items():
        for key, setting in profile.items():
            yield _row(f"backends.{name}", key, setting)
    for key, default in defaults.items():
        if key != "backend":
            yield _row("run" if lock else "defaults", key, config.setting(key, lock) or Setting(default, ""))
    for layer in config.layers if lock is None else ():
        for key, setting in layer.settings.items():
            if layer.pattern is not None:
                yield _row(f'locks."{layer.pattern}"', key, setting)
    for table, settings in (("metrics", config.metrics), ("journal", config.journal)):
        for key, setting in settings.items():
            yield _row(table, key, setting)


def _row(table: str, key: str, setting: Setting) -> Row:
    value = setting.value
    if isinstance(value, str) and key in ("url", "backend") and ":" in value:
        value = masked(value)
    return Row(
        table,
        key,
        value if isinstance(value, str | int | float | bool) else None,
        str(setting.file) if setting.file else BUILT_IN,
    )


def _file_of(origin: str) -> str:
    return origin.partition(": ")[0] or BUILT_IN
