"""Where this host keeps its state: locks of the embedded engine, lease files."""

from __future__ import annotations

import os
from pathlib import Path

from .backends.base import ConfigurationError
from .quoting import quoted


def state_directory() -> Path:
    """DISTLOCK_STATE_DIR; else /var/lib/distlock for root and the user's state directory (XDG) for others.

    Works without HOME, from the password database. Raises ConfigurationError when there is no home at all.
    """
    chosen = os.environ.get("DISTLOCK_STATE_DIR")
    if chosen:
        if not os.path.isabs(chosen):
            raise ConfigurationError(f"DISTLOCK_STATE_DIR: {quoted(chosen)} is not an absolute path")
        return Path(chosen)
    from platformdirs import site_state_path, user_state_path

    if os.geteuid() == 0:
        return site_state_path("distlock")
    if os.environ.get("HOME") == "":
        del os.environ["HOME"]  # as unset: an empty one would put the state under /.local
    try:
        found = user_state_path("distlock")
    except RuntimeError:  # what older releases of platformdirs return is not absolute
        found = Path("~")
    if not found.is_absolute():
        raise ConfigurationError(
            f"user {os.geteuid()} has no home directory; set HOME, XDG_STATE_HOME or DISTLOCK_STATE_DIR"
        )
    return found
