"""One connection to one PostgreSQL: statements out, rows and notifications in, everything within a time-out.

psycopg's thin layer over libpq is used, not its connections: those wait without a deadline for the whole, and they
have no descriptor to wait on beside another one.
"""

from __future__ import annotations

import random
import select
import time
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq

from .base import DistlockError, Unavailable
from .postgres_connect import Connection, Connector
from .postgres_errors import AGAIN, MISSING, UNDEFINED_COLUMN, Dropped, MissingTables, of_answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .postgres_url import Server

Row = tuple[str | None, ...]
_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)


class Link:
    """Connects when first asked, and anew when the connection has gone. ``until`` is always the instant by which an
    answer or an error is there; only the resolution of a host name is beyond that, the system has limits of its own."""

    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self._connector = Connector(server)
        self._clock = clock
        self._until = 0.0
        self._connection: Connection | None = None
        self._unanswered = False
        self._listening: frozenset[str] = frozenset()
        self._heard: set[str] = set()
        self.sent_at = 0.0
        """Just before the last statement that was answered was sent."""
        self.session = 0
        """Counts connections: another number, another session of the server."""

    @property
    def address(self) -> str:
        return self._connector.address

    @property
    def pid(self) -> int:
        """Of the session, as the server told it at the login. A pooler tells one of its own making."""
        return self._connection.backend_pid if self._connection is not None else 0

    # -- statements --------------------------------------------------------------------------------------------------

    def connect(self, until: float) -> None:
        """After this nothing has been asked for yet. Raises Unavailable, Refused, ConfigurationError."""
        self._until = until
        self._connected()

    def ask(self, statement: bytes, until: float, channel: str | None = None) -> list[Row]:
        """The rows of its last result that has any; ``channel`` is listened to from then on. Sent again if the
        connection turns out to have been dropped, or is dropped, which all our statements allow. Raises Unavailable,
        Refused, ConfigurationError, MissingTables."""
        self._until = until
        again = 1 if self._connection is None else 2
        while True:
            try:
                connection = self._connected()
                if channel is None or channel in self._listening:
                    return self._ask(statement, connection)
                rows = self._ask(statement + f'LISTEN "{channel}"'.encode(), connection)
                self._listening |= {channel}
                return rows
            except Dropped as drop:
                self.close()
                if not again:
                    raise Unavailable(str(drop)) from drop
                again -= 1

    def ask_here(self, statement: bytes, until: float) -> list[Row]:
        """On this very connection. An answer that does not come in time leaves it open: the next statement waits for it
        first. Raises Unavailable, Refused, MissingTables; Dropped, when it has gone."""
        self._until = until
        if self._connection is None:
            raise Dropped(f"{self.address} closed the connection")
        try:
            return self._ask(statement, self._connection, keep=True)
        except Dropped:
            self.close()
            raise

    def _ask(self, statement: bytes, connection: Connection, *, keep: bool = False) -> list[Row]:
        try:
            if self._unanswered:
                self._results(connection)
            while True:
                self._left()
                self.sent_at = self._clock()
                self._unanswered = True
                connection.send_query(statement)
                results = self._results(connection)
                failed = next((result for result in results if result.status not in _GOOD), None)
                if failed is None:
                    return next((_rows(result) for result in reversed(results) if result.ntuples), [])
                self._failed(failed, connection)
                time.sleep(random.uniform(0, 0.01))
        except psycopg.OperationalError as error:
            raise Dropped(f"{self.address} closed the connection") from error
        except Unavailable:
            if self._unanswered and not keep:
                self.close()
            raise

    def _failed(self, result: pq.abc.PGresult, connection: Connection) -> None:
        """Returns when the statement may be tried again."""
        field = {name: result.error_field(name) or b"" for name in pq.DiagnosticField}
        state = field[pq.DiagnosticField.SQLSTATE].decode()
        said = field[pq.DiagnosticField.MESSAGE_PRIMARY].decode(errors="replace") or result.get_error_message()
        if state in AGAIN:
            return
        error = of_answer(state, said, self.address, field[pq.DiagnosticField.CONSTRAINT_NAME].decode())
        if connection.status == pq.ConnStatus.BAD:
            raise Dropped(str(error))
        if state in MISSING or (state == UNDEFINED_COLUMN and "used_at" in said):
            raise MissingTables(said)
        if state == "25006":
            self.close()  # a primary may be found among the other hosts, or behind the same name
        raise error

    def _results(self, connection: Connection) -> list[pq.abc.PGresult]:
        found = []
        while connection.flush():
            self._await(connection, select.POLLIN | select.POLLOUT)
            connection.consume_input()
        while True:
            while connection.is_busy():
                self._await(connection, select.POLLIN)
                connection.consume_input()
            result = connection.get_result()
            if result is None:
                break
            found.append(result)
        self._unanswered = False
        self._hear(connection)
        return found

    def _await(self, connection: Connection, events: int) -> None:
        look = select.poll()
        look.register(connection.socket, events)
        if not look.poll(self._left() * 1000):
            self._left()

    # -- notifications -----------------------------------------------------------------------------------------------

    def listen(self, channels: Sequence[str], until: float) -> bool:
        """To these and no others. A notification to ourselves, on the first, proves that it works: a pooler eats it.
        Raises as ``ask``."""
        wanted = frozenset(channels)
        if self._connection is not None and wanted == self._listening:
            return True
        words = ["UNLISTEN *", *(f'LISTEN "{channel}"' for channel in channels), f'NOTIFY "{channels[0]}"']
        self._heard.clear()
        self.ask(";".join(words).encode(), until)
        proven = channels[0] in self._heard
        self._heard.discard(channels[0])
        self._listening = wanted if proven else frozenset()
        return proven

    def listen_too(self, channel: str, until: float) -> None:
        """To this one as well, if there is a connection and it answers in time. Never raises, and ends no session."""
        if self._connection is None or self.hears(channel):
            return
        self._until = until
        try:
            self._ask(f'LISTEN "{channel}"'.encode(), self._connection, keep=True)
            self._listening |= {channel}
        except (DistlockError, MissingTables, Dropped):
            pass  # the next renewal tells, what has happened and why

    def hears(self, channel: str) -> bool:
        return self._connection is not None and channel in self._listening

    def wait(self, timeout: float, cancel: int) -> bool:
        """Until a notification came, the connection dropped, or ``cancel`` is readable: whether it was the first."""
        end = self._clock() + timeout
        connection = self._connection
        look = select.poll()
        look.register(cancel, select.POLLIN)
        try:
            if connection is not None:
                look.register(connection.socket, select.POLLIN)
            while not self._heard:
                left = end - self._clock()
                if left <= 0 or any(descriptor == cancel for descriptor, _ in look.poll(left * 1000)):
                    return False
                if connection is not None:
                    connection.consume_input()
                    self._hear(connection)
            return True
        except psycopg.OperationalError:
            self.close()  # the next statement connects anew, or tells why it cannot
            return False
        finally:
            self._heard.clear()

    def _hear(self, connection: Connection) -> None:
        while note := connection.notifies():
            self._heard.add(note.relname.decode())

    @property
    def descriptor(self) -> int | None:
        """Readable when something came that nobody asked for, or the connection dropped."""
        try:
            return None if self._connection is None else self._connection.socket
        except psycopg.OperationalError:
            return None  # dropped, and nobody has asked since

    # -- the connection ----------------------------------------------------------------------------------------------

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._listening = frozenset()
        self._heard.clear()
        self._unanswered = False
        if connection is not None:
            connection.finish()

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self._connector.connect(self._left)
            self.session += 1
        return self._connection

    def _left(self) -> float:
        left = self._until - self._clock()
        if left <= 0:
            raise Unavailable(f"{self.address} does not answer")
        return left


def _rows(result: pq.abc.PGresult) -> list[Row]:
    return [
        tuple(
            None if (value := result.get_value(row, column)) is None else value.decode(errors="replace")
            for column in range(result.nfields)
        )
        for row in range(result.ntuples)
    ]
