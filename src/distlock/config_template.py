"""The file that ``distlock config init`` writes: everything there is, commented out, so that it changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from .backends.base import ConfigurationError

_HEAD = """\
# Configuration of distlock. What the command line or the environment says counts more; the site's file is
# /etc/distlock/config.toml, a user's own counts over it key by key. `distlock config` shows what counts.

# Where locks live: a URL, or the name of one of the [backends] below.
# backend = "prod"

# [backends.prod]
# url = "redis://distlock@redis.example/0"
# password_file = "redis.password"   # beside this file; readable by its owner alone, or root's for a group
# ca = "ca.pem"                      # TLS: the CA, and the client's own certificate with its key
# cert = "client.pem"
# key = "client.key"
# require = "efficiency"             # the safety class that this backend has to have for every run

# Options of `distlock run`, for all locks.
[defaults]
"""

_TAIL = """
# The same for locks by their names, as a shell matches them. Of several that match the last counts, key by key.
# [locks."nightly-*"]
# wait = "1h"
# backend = "prod"

# Prometheus metrics of this host's runs, written for node_exporter's textfile collector after each run. A folder, or a
# file's name; each user's file has the uid in its name.
# [metrics]
# textfile = "/var/lib/prometheus/node-exporter"

# The runs of this host that `distlock history` and `distlock metrics` know.
# [journal]
# enabled = true
# runs = 10000
# keep = "90d"
"""


def template(options: Iterable[tuple[str, str]]) -> str:
    """``options``: a line ``key = value`` and what it means, each."""
    return _HEAD + "".join(f"## {what}\n# {setting}\n" for setting, what in options) + _TAIL


def write_new(path: Path, text: str, mode: int) -> None:
    """Never over anything. Raises ConfigurationError."""
    try:
        path.parent.mkdir(mode=0o755 if mode & 0o004 else 0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(f"{path} exists; nothing was written") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {(error.strerror or '').lower()}") from error
