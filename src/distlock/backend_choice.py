"""Which backend a command uses: what was asked for, by whom, and what may be shown of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from .backend_url import EMBEDDED, has_secret, masked, password
from .backends import scheme_of, with_tls
from .backends.base import ConfigurationError
from .config import Config, Setting, folder_of, no_such_profile
from .config_file import read_password

if TYPE_CHECKING:
    from .backends.base import Safety


class Chosen(NamedTuple):
    url: str
    shown: str
    """A profile's name, or the URL without what may be secret."""
    origin: str
    """The option, variable, or key that chose it; empty for the embedded default."""
    password: str | None
    """For a URL that has none."""
    require: Safety | None
    """The class that a profile asks for."""

    @property
    def is_named(self) -> bool:
        """Whether somebody chose it, rather than nobody."""
        return bool(self.origin)

    def __repr__(self) -> str:
        return f"<backend {self.shown}>"  # a NamedTuple's own shows the password


def choose(option: str | None, config: Config, lock: str | None = None) -> Chosen:
    """Command line, then DISTLOCK_BACKEND (empty is unset), then the configuration, for this lock if it has one, then
    the embedded default. Contacts nothing. Raises ConfigurationError."""
    asked = _asked(option, config, lock)
    if asked is None:
        if config.profiles:
            raise ConfigurationError(
                f"{config.files[-1]}: backends are defined ({', '.join(config.profiles)}), but none is chosen: set"
                " backend = at the top, or use -b or DISTLOCK_BACKEND"
            )
        asked = Setting(EMBEDDED, "")
    word = str(asked.value)
    if ":" not in word:
        return _profile(word, asked, config)
    scheme_of(word)
    return Chosen(word, masked(word), asked.origin, password(), None)


def _asked(option: str | None, config: Config, lock: str | None) -> Setting | None:
    if option is not None:
        return Setting(option, "--backend")
    if variable := os.environ.get("DISTLOCK_BACKEND"):
        return Setting(variable, "DISTLOCK_BACKEND")
    return config.setting("backend", lock) or config.backend


def _profile(name: str, asked: Setting, config: Config) -> Chosen:
    profile = config.profiles.get(name)
    if profile is None:
        error = no_such_profile(name, config)
        raise ConfigurationError(f"{asked.origin}: {error}") if asked.file else error
    url = str(profile["url"].value)
    try:
        scheme = scheme_of(url)
    except ConfigurationError as error:
        raise ConfigurationError(f"{profile['url'].origin}: {error}") from None
    files: dict[str, str] = {key: str(_path(profile[key])) for key in ("ca", "cert", "key") if key in profile}
    if files:
        url = with_tls(scheme, url, files)
    word = password()
    if word is None and "password_file" in profile:
        if has_secret(str(profile["url"].value)):
            raise ConfigurationError(f"{profile['password_file'].origin}: the url has a password already")
        word = read_password(_path(profile["password_file"]))
    require = cast("Safety | None", profile["require"].value) if "require" in profile else None
    return Chosen(url, name, asked.origin, word, require)


def _path(setting: Setting) -> Path:
    """Relative to the file that says so."""
    return folder_of(setting) / str(setting.value)
