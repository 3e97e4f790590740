"""Private PostgreSQL servers and PgBouncers for tests, on the loopback interface and a unix socket, ended with the test
that started them. They are signalled by pid only."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql as composed

from distlock.supervise import tree
from processes import wait_until
from servers import HOST, free_port

USER = "postgres"
"""PostgreSQL refuses to run as root. It is also the role that may do everything."""
PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")  # nothing stays behind a test run that was killed


def _as_user() -> tuple[str, ...]:
    if os.geteuid() != 0:
        return _DIES_WITH_US
    entry = pwd.getpwnam(USER)
    return (*_DIES_WITH_US, f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups")


@contextmanager
def users_folder() -> Iterator[Path]:
    """Where the servers' user gets at it, which pytest's own folders are not."""
    made = Path(tempfile.mkdtemp(prefix="distlock-postgres-"))
    try:
        if os.geteuid() == 0:
            entry = pwd.getpwnam(USER)
            os.chown(made, entry.pw_uid, entry.pw_gid)
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@cache
def _template() -> Path:
    keep = ExitStack()
    folder = keep.enter_context(users_folder())
    atexit.register(keep.close)
    data = str(folder / "data")
    PostgresServer.program("initdb", "-D", data, "-A", "trust", "-U", USER, "-E", "UTF8", "--locale=C", "--no-sync")
    return folder


@dataclass
class PostgresServer:
    """One server with its data in ``folder``. Durable only with ``fsync``: everything that does not crash is faster
    without it."""

    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    hba: Sequence[str] = ()
    """Lines before the one that lets everybody in."""
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def place(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return self.url_of(USER)

    def url_of(self, user: str, database: str = "postgres", scheme: str = "postgresql") -> str:
        return f"{scheme}://{user}@{self.place}/{database}"

    @property
    def advisory_url(self) -> str:
        return self.url_of(USER, scheme="postgresql+advisory")

    def make(self) -> None:
        """A copy of one that was never started: initdb takes several times as long."""
        subprocess.run([*_as_user(), "cp", "-a", str(_template() / "data"), str(self.data)], check=True)

    @staticmethod
    def program(name: str, *arguments: str) -> None:
        done = subprocess.run(
            [*_as_user(), str(PROGRAMS / name), *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def start(self, *, ready: bool = True) -> None:
        lines = [
            *self.hba,
            "local all,replication all trust",
            "host all,replication all 127.0.0.1/32 trust",
        ]
        (self.data / "pg_hba.conf").write_text("\n".join(lines) + "\n")
        settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "max_connections": "100",
            "shared_buffers": "16MB",
            **self.options,
        }
        command = [*_as_user(), str(PROGRAMS / "postgres"), "-D", str(self.data)]
        command += [f"--{name}={value}" for name, value in settings.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if ready:
            wait_until(self.answers, 20, "an answer of PostgreSQL")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        try:
            self.sql("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def connect(self, user: str = USER, database: str = "postgres") -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            host=str(self.folder), port=self.port, user=user, dbname=database, autocommit=True, connect_timeout=5
        )

    def sql(self, statement: str, *values: object, user: str = USER, database: str = "postgres") -> list[Any]:
        """Rows, of one column as its values."""
        with self.connect(user, database) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            rows = cursor.fetchall() if cursor.description else []
            return [row[0] if len(row) == 1 else row for row in rows]

    def role(self, name: str, password: str | None = None) -> None:
        secret = composed.Literal(password)
        with self.connect() as connection:
            connection.execute(
                composed.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(composed.Identifier(name), secret)
            )

    def sessions(self) -> list[int]:
        """Pids of distlock's."""
        return self.sql(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'distlock' AND pid <> pg_backend_pid()"
        )

    def forget(self) -> None:
        """As if no distlock had ever been here."""
        tables = ", ".join(
            f"public.distlock_{table}" for table in ("layout", "lock", "holder", "waiter", "mark", "fence")
        )
        self.sql(f"DROP TABLE IF EXISTS {tables}")

    # -- what can happen to it ---------------------------------------------------------------------------------------

    def _processes(self) -> list[int]:
        assert self.process is not None
        return [self.process.pid, *tree.children(self.process.pid)]

    def freeze(self) -> None:
        """The postmaster first, so that nothing new comes."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        self._await_stop(self.process.pid)
        for pid in self._processes()[1:]:
            os.kill(pid, signal.SIGSTOP)
            self._await_stop(pid)

    @staticmethod
    def _await_stop(pid: int) -> None:
        status = Path(f"/proc/{pid}/status")
        wait_until(lambda: "State:\tT" in status.read_text() or "State:\tZ" in status.read_text())

    def thaw(self) -> None:
        for pid in reversed(self._processes()):
            with suppress(ProcessLookupError):  # one that was killed meanwhile
                os.kill(pid, signal.SIGCONT)

    def crash(self) -> None:
        """An immediate shutdown: nothing is written that was not."""
        if self.process is not None and self.process.poll() is None:
            self.thaw()
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(20)

    def kill(self) -> None:
        """All of it at once, as when the power goes; also while it is starting."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGSTOP)  # nothing new comes
            for pid in reversed(self._processes()):
                os.kill(pid, signal.SIGKILL)
            self.process.wait(20)

    @contextmanager
    def running(self) -> Iterator[PostgresServer]:
        if not self.data.exists():
            self.make()
        self.start()
        try:
            yield self
        finally:
            self.crash()


@contextmanager
def postgres(options: dict[str, str] | None = None, hba: Sequence[str] = ()) -> Iterator[PostgresServer]:
    with users_folder() as folder, PostgresServer(folder, options or {}, hba).running() as server:
        yield server


@contextmanager
def standby(primary: PostgresServer, via: int = 0) -> Iterator[PostgresServer]:
    """A copy made with pg_basebackup that follows the primary, ``via`` another port behind which that is."""
    with users_folder() as folder:
        made = PostgresServer(folder)
        source = f"host={HOST} port={primary.port} user={USER}"
        made.program("pg_basebackup", "-D", str(made.data), "-d", source, "-R", "-c", "fast", "--no-sync")
        follow = f"host={HOST} port={via or primary.port} user={USER} application_name=standby"
        made.options["primary_conninfo"] = follow
        with made.running():
            wait_until(lambda: primary.sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'") == [1])
            yield made


@dataclass
class PgBouncer:
    """A pooler before a server. Few sessions of the server for many clients."""

    server: PostgresServer
    folder: Path
    mode: str = "transaction"
    size: int = 2
    port: int = field(default_factory=free_port)

    @cached_property
    def _settings(self) -> Path:
        return self.folder / "pgbouncer.ini"

    @property
    def place(self) -> str:
        return f"{HOST}:{self.port}"

    def url(self, scheme: str = "postgresql") -> str:
        return f"{scheme}://{USER}@{self.place}/postgres"

    @contextmanager
    def running(self) -> Iterator[PgBouncer]:
        (self.folder / "users").write_text(f'"{USER}" ""\n')
        self._settings.write_text(
            f"[databases]\n* = host={HOST} port={self.server.port}\n"
            f"[pgbouncer]\nlisten_addr = {HOST}\nlisten_port = {self.port}\nauth_type = trust\n"
            f"auth_file = {self.folder / 'users'}\npool_mode = {self.mode}\ndefault_pool_size = {self.size}\n"
            "unix_socket_dir =\nmax_client_conn = 100\n"
        )
        command = [*_as_user(), shutil.which("pgbouncer") or "/usr/sbin/pgbouncer", "-q", str(self._settings)]
        with (self.folder / "pgbouncer.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_until(self._answers, 20, "an answer of PgBouncer")
            yield self
        finally:
            process.kill()
            process.wait()

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url(), connect_timeout=5, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def pgbouncer(server: PostgresServer, mode: str = "transaction", size: int = 2) -> Iterator[PgBouncer]:
    with users_folder() as folder, PgBouncer(server, folder, mode, size).running() as running:
        yield running
