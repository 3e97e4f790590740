"""Where a run is recorded: --log-to, and the tables [journal] and [metrics]."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from distlock.account import Keeping
from distlock.backends.base import ConfigurationError
from distlock.config import folder_of
from distlock.durations import parse_duration
from distlock.quoting import quoted

from .settings import fault

if TYPE_CHECKING:
    from distlock.config import Config
    from distlock.log_target import LogTarget

    from .settings import Options


def keeping_of(config: Config, options: Options) -> Keeping:
    """Raises UsageError, ConfigurationError."""
    found = Keeping(log=_log(options))
    journal = config.journal
    if "runs" in journal:
        found = found._replace(runs=int(str(journal["runs"].value)))
    if "keep" in journal:
        found = found._replace(seconds=parse_duration(str(journal["keep"].value)))
    textfile = config.metrics.get("textfile")
    if textfile:
        found = found._replace(textfile=os.path.join(folder_of(textfile), str(textfile.value)))
    if "enabled" in journal and not journal["enabled"].value:
        if textfile:
            raise ConfigurationError(
                f"{textfile.origin} is made from the journal, and {journal['enabled'].origin} is false"
            )
        found = found._replace(journal=False)
    return found


def _log(options: Options) -> LogTarget | None:
    target, form = options.get("log-to"), options.get("log-format")
    if form.value not in ("text", "json"):
        raise fault(form, f"{form.origin}: {quoted(str(form.value))} is none of text, json")
    if target.value is None:
        return None
    from distlock.log_target import is_daemon, log_target

    text = str(target.value)
    if target.file and not is_daemon(text):
        text = os.path.join(folder_of(target), text)
    return log_target(text, "json" if form.value == "json" else "text", target.origin)
