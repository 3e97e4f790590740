"""Where this host keeps its state: locks of the embedded engine, lease files."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import TYPE_CHECKING

from .backends.base import ConfigurationError
from .quoting import quoted

if TYPE_CHECKING:
    from collections.abc import Callable


def users_path(find: Callable[[str], Path], below_home: str) -> Path | None:
    """What ``find`` of platformdirs says for distlock; None for a user without a home. An empty HOME is as unset: it
    would put all under /. The environment may be a host program's, so it stays as it is."""
    try:
        found = find("distlock")
        if os.environ.get("HOME") == "" and found == Path("/", below_home, "distlock"):
            found = Path(pwd.getpwuid(os.getuid()).pw_dir, below_home, "distlock")
    except (RuntimeError, KeyError):  # what older releases of platformdirs return is not absolute
        return None
    return found if found.is_absolute() else None


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
    found = users_path(user_state_path, ".local/state")
    if found is None:
        raise ConfigurationError(
            f"user {os.geteuid()} has no home directory; set HOME, XDG_STATE_HOME or DISTLOCK_STATE_DIR"
        )
    return found
