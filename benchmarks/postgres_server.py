"""A PostgreSQL with its own folder and port, on the loopback interface only. It keeps its promises: fsync is on."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from .processes import end, wait_until

_HOST = "127.0.0.1"
_USER = "postgres"


class PostgresServer:
    def __init__(self, port: int) -> None:
        self.url = f"postgresql://{_USER}@{_HOST}:{port}/postgres"

    def is_up(self) -> bool:
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """In a folder of its own: it refuses to run as root, and another user does not get at root's, nor at what lies
    in it."""
    with socket.socket() as opened:
        opened.bind((_HOST, 0))
        port: int = opened.getsockname()[1]
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    folder = Path(tempfile.mkdtemp(prefix="distlock-benchmark-postgres-", dir=None if os.geteuid() else "/tmp"))
    as_user = ["setpriv", "--pdeathsig", "KILL"]  # nothing stays behind a benchmark that was killed
    if os.geteuid() == 0:
        entry = pwd.getpwnam(_USER)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        as_user += [f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]
    try:
        data = str(folder / "data")
        make = [*as_user, str(programs / "initdb"), "-D", data, "-A", "trust", "-U", _USER, "--no-sync"]
        subprocess.run(make, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        serve = [*as_user, str(programs / "postgres"), "-D", data, "-p", str(port), "-k", "", "-h", _HOST]
        process = subprocess.Popen(
            serve, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            server = PostgresServer(port)
            wait_until(server.is_up, "postgres answers")
            yield server
        finally:
            process.send_signal(signal.SIGINT)  # with TERM it would wait for its clients to go
            end(process, grace=10.0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
