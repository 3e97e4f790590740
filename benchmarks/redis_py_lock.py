"""A command under the lock of redis-py, as a script would write it: ``URL NAME COMMAND [ARG]…``."""

from __future__ import annotations

import subprocess
import sys

import redis


def main() -> int:
    url, name, *command = sys.argv[1:]
    with redis.Redis.from_url(url, client_name=name) as client, client.lock(f"lock:{name}", timeout=30):
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
