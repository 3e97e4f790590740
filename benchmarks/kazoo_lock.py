"""A command under the lock of kazoo, as a script would write it: ``HOSTS PATH COMMAND [ARG]…``."""

from __future__ import annotations

import subprocess
import sys

from kazoo.client import KazooClient


def main() -> int:
    hosts, path, *command = sys.argv[1:]
    client = KazooClient(hosts, timeout=30)
    client.start()
    try:
        with client.Lock(path):
            return subprocess.run(command, check=False).returncode
    finally:
        client.stop()


if __name__ == "__main__":
    sys.exit(main())
