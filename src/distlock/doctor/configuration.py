"""What of the configuration breaks locks, or does so somewhere else than here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.backend_choice import choose
from distlock.backend_url import EMBEDDED, has_secret
from distlock.backends import SCHEMES, scheme_of
from distlock.backends.base import ConfigurationError, DistlockError
from distlock.durations import parse_duration

from .catalogue import (
    BROKEN_PROFILE,
    NO_BACKEND,
    ONLY_HERE,
    PASSWORD_IN_ARGUMENTS,
    PASSWORD_IN_ENVIRONMENT,
    SEVERAL_ENGINES,
)
from .ttl import DEFAULT_TTL, Configured

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.backend_choice import Chosen
    from distlock.config import Config

    from .catalogue import Noted


def findings(config: Config, chosen: Chosen) -> Iterator[Noted]:
    yield from _choice(config, chosen)
    yield from _passwords(chosen)
    yield from _profiles(config)


def _choice(config: Config, chosen: Chosen) -> Iterator[Noted]:
    if not chosen.is_named:
        where = f"no backend in {_files(config)}" if config.files else "no configuration file"
        yield NO_BACKEND.found(f"no -b, no DISTLOCK_BACKEND, {where}")
    elif chosen.origin in ("--backend", "DISTLOCK_BACKEND") and (without := _without(config)) != chosen.shown:
        yield ONLY_HERE.found(f"{chosen.origin} names {chosen.shown}; without it there is {without} ({_files(config)})")


def _without(config: Config) -> str:
    """What a job uses that is started elsewhere."""
    if config.backend is None and config.profiles:
        return "none"
    try:
        return choose(str(config.backend.value) if config.backend else EMBEDDED, config).shown
    except DistlockError:
        return "none that could be used"


def _files(config: Config) -> str:
    return ", ".join(map(str, config.files)) or "no configuration file"


def _passwords(chosen: Chosen) -> Iterator[Noted]:
    if ":" not in chosen.shown or not has_secret(chosen.url):
        return  # a profile's name, or nothing to hide
    if chosen.origin == "--backend":
        yield PASSWORD_IN_ARGUMENTS.found(f"-b {chosen.shown}")
    elif chosen.origin == "DISTLOCK_BACKEND":
        yield PASSWORD_IN_ENVIRONMENT.found(f"DISTLOCK_BACKEND={chosen.shown}")


def _profiles(config: Config) -> Iterator[Noted]:
    engines: dict[str, list[str]] = {}
    for name, scheme in _places(config):
        try:
            engine = SCHEMES[scheme_of(f"{scheme}:")]
        except ConfigurationError as error:
            yield BROKEN_PROFILE.found(f"{name}: {error}")
        else:
            engines.setdefault(engine, []).append(f"{name} is {scheme}:")
    if len(engines) > 1:
        yield SEVERAL_ENGINES.found("; ".join(first for some in engines.values() for first in some))


def _places(config: Config) -> Iterator[tuple[str, str]]:
    """Each backend of the configuration, with the scheme of its URL: the rest may be secret."""
    for name, profile in config.profiles.items():
        yield name, _scheme(str(profile["url"].value))
    if config.backend and ":" in (url := str(config.backend.value)):
        yield "backend", _scheme(url)
    for layer in config.layers:
        if "backend" in layer.settings and ":" in (url := str(layer.settings["backend"].value)):
            yield f"[{'defaults' if layer.pattern is None else layer.pattern}] backend", _scheme(url)


def _scheme(url: str) -> str:
    return url.partition(":")[0]


def configured_ttls(config: Config, chosen: Chosen) -> Iterator[Configured]:
    """Of locks that are, or may be, in the backend that was chosen."""
    default = config.setting("ttl", None)
    if default is None:
        yield Configured(DEFAULT_TTL, "the default")
    else:
        yield Configured(parse_duration(str(default.value)), default.origin)
    for layer in config.layers:
        own = layer.settings.get("backend")
        if layer.pattern is None or "ttl" not in layer.settings or (own and str(own.value) != chosen.shown):
            continue
        setting = layer.settings["ttl"]
        yield Configured(parse_duration(str(setting.value)), setting.origin)
