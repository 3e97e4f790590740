"""``distlock config``: what is set, and by what; ``distlock config init``: a file to begin with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from distlock.backend_choice import choose
from distlock.backends.base import ConfigurationError
from distlock.config import SITE, named_file, user_file
from distlock.config_keys import Key
from distlock.config_template import template, write_new
from distlock.config_view import VERSION, rows
from distlock.errors import UsageError
from distlock.names import parse_name
from distlock.quoting import quoted

from .settings import ConfigOption, configuration, settings_of_run


def config(
    action: Annotated[
        str | None,
        typer.Argument(
            metavar="[init]", help="Write a commented file, over nothing; root: in /etc.", show_default=False
        ),
    ] = None,
    config: ConfigOption = None,
    lock: Annotated[str | None, typer.Option("--lock", metavar="NAME", help="What counts for this lock.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: keys and units are stable.")] = False,
) -> None:
    """Show every setting with where it was set; passwords are not shown.

    The file is the one of --config or DISTLOCK_CONFIG, else /etc/distlock/config.toml and over it the user's own.
    """
    if action is not None and action != "init":
        raise UsageError(f"{quoted(action)}: distlock config takes nothing, or init")
    if action == "init":
        _init(config)
        return
    from .render import print_json
    from .render_config import print_config

    name = None if lock is None else parse_name(lock)
    found = configuration(config)
    defaults = {key: default for key, (_, default, _) in settings_of_run().items()}
    shown = list(rows(found, choose(None, found, name), defaults, name))
    if as_json:
        files = [str(file) for file in found.files]
        print_json({"version": VERSION, "files": list(files), "settings": [row._asdict() for row in shown]})
    else:
        print_config(shown)


def _init(option: str | None) -> None:
    named = named_file(option)
    if named:
        path: Path | None = Path(os.path.abspath(named))
    else:
        path = SITE if os.geteuid() == 0 else user_file()
    if path is None:
        raise ConfigurationError(f"user {os.geteuid()} has no home directory; name the file with --config")
    settings = [
        (f"{key} = {_example(kind, default)}", words)
        for key, (kind, default, words) in settings_of_run().items()
        if key != "backend"
    ]
    # Everybody's file has to be read by everybody; in one's own a password may stand.
    write_new(path, template(settings), 0o644 if path == SITE else 0o600)
    print(path)


def _example(key: Key, default: object) -> str:
    """A value that can be taken as it is: the default, where there is one."""
    if key.kind == "flag":
        return "true" if default else "false"
    if key.kind in ("count", "number"):
        return str(default or key.lowest or 0)
    return json.dumps(default or {"duration": "5s"}.get(key.kind) or (key.choices or ("text",))[0])
