"""A connection of libpq, made within a time-out over all hosts and addresses of a URL.

libpq's own connect_timeout does not hold for connections made without blocking, and blocking ones resolve and wait
beyond any deadline of ours. So each address is an attempt, with its share of the time.
"""

from __future__ import annotations

import os
import random
import select
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg import pq

from .base import ConfigurationError, DistlockError, Refused, Unavailable
from .postgres_errors import of_login
from .postgres_url import conninfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from .postgres_url import Server

Connection = pq.abc.PGconn
_Poll = pq.PollingStatus


class Host(NamedTuple):
    name: str
    """A host name, an address, or the folder of a unix socket."""
    address: str
    """Given beside the name; else ''."""
    port: str

    @property
    def shown(self) -> str:
        place = self.name or self.address
        if place.startswith(("/", "@")):
            return f"{place}/.s.PGSQL.{self.port}"
        return f"[{place}]:{self.port}" if ":" in place else f"{place}:{self.port}"


class Connector:
    """``left`` says how many seconds there are, or raises Unavailable."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._hosts: list[Host] = []
        self.address = "PostgreSQL"
        """The host that was tried last."""

    def connect(self, left: Callable[[], float]) -> Connection:
        """The first host that answers and can be written to, beginning with the one that did last time. Raises
        Unavailable, Refused, ConfigurationError."""
        hosts = self._hosts or self._resolved()
        troubles: list[DistlockError] = []
        for number, host in enumerate(hosts):
            try:
                connection = self._to(host, lambda n=number: left() / (len(hosts) - n), several=len(hosts) > 1)  # type: ignore[misc]
            except DistlockError as error:
                troubles.append(error)
                continue
            self._hosts = [host, *(other for other in hosts if other != host)]
            return connection
        raise _summed_up(troubles)

    def _resolved(self) -> list[Host]:
        """From the URL, the service or the environment, as libpq does it."""
        probe = pq.PGconn.connect_start(conninfo(self._server.parameters))
        try:
            given = {o.keyword.decode(): os.fsdecode(o.val) for o in probe.info if o.val is not None}
            if not given.get("host") and not given.get("hostaddr"):
                if probe.status == pq.ConnStatus.BAD:
                    raise of_login(probe.get_error_message(), "the server", needs_password=False)
                given["host"] = probe.host.decode()  # the folder of the socket that libpq was built with
        finally:
            probe.finish()
        names, addresses = (given.get(key, "").split(",") for key in ("host", "hostaddr"))
        ports = (given.get("port") or "5432").split(",")
        count = max(len(names), len(addresses))
        if len(ports) == 1:
            ports *= count
        names = names if len(names) == count else [""] * count
        addresses = addresses if len(addresses) == count else [""] * count
        if len(ports) != count:
            raise ConfigurationError("backend URL postgresql://***: as many ports as hosts, or one for all of them")
        if not all(port.isdigit() and 0 < int(port) < 65536 for port in ports if port):
            raise ConfigurationError("backend URL postgresql://***: a port is a number from 1 to 65535")
        hosts = [Host(*each[:2], each[2] or "5432") for each in zip(names, addresses, ports, strict=True)]
        if given.get("load_balance_hosts") == "random":
            random.shuffle(hosts)
        return hosts

    def _to(self, host: Host, share: Callable[[], float], *, several: bool) -> Connection:
        self.address = host.shown
        addresses = _addresses(host)
        trouble: DistlockError | None = None
        for number, address in enumerate(addresses):
            parameters = {**self._server.parameters, "host": host.name, "hostaddr": address, "port": host.port}
            if several:
                parameters.setdefault("target_session_attrs", "read-write")
            parameters = {name: value for name, value in parameters.items() if value or name == "password"}
            limit = share() / (len(addresses) - number)
            wanted = parameters.get("connect_timeout", "")
            if wanted.isdigit() and int(wanted) > 0:
                limit = min(limit, float(wanted))
            try:
                return self._attempt(parameters, limit)
            except Unavailable as error:
                trouble = trouble or error
        assert trouble is not None
        raise trouble

    def _attempt(self, parameters: dict[str, str], limit: float) -> Connection:
        end = _Countdown(limit)
        try:
            connection = pq.PGconn.connect_start(conninfo(parameters))
        except psycopg.OperationalError as error:
            raise of_login(str(error), self.address, needs_password=False) from error
        done = False
        try:
            status: int = _Poll.WRITING
            while connection.status != pq.ConnStatus.BAD and status not in (_Poll.OK, _Poll.FAILED):
                look = select.poll()
                look.register(connection.socket, select.POLLOUT if status == _Poll.WRITING else select.POLLIN)
                if not look.poll(end.milliseconds()):
                    raise Unavailable(f"{self.address} does not answer")
                status = connection.connect_poll()
            if connection.status != pq.ConnStatus.OK:
                raise of_login(connection.get_error_message(), self.address, needs_password=connection.needs_password)
            connection.nonblocking = 1
            done = True
            return connection
        except psycopg.OperationalError as error:
            raise of_login(str(error), self.address, needs_password=connection.needs_password) from error
        finally:
            if not done:
                connection.finish()


class _Countdown:
    """CLOCK_MONOTONIC stands still in suspend: the caller's own deadline is on top of this one."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def milliseconds(self) -> float:
        return max(0.0, self._end - time.monotonic()) * 1000


def _addresses(host: Host) -> list[str]:
    """Of a name, in the resolver's order; [''] where there is nothing to resolve. Takes as long as the system lets it:
    its resolv.conf sets the limit."""
    if host.address or host.name.startswith(("/", "@")):
        return [host.address]
    try:
        found = socket.getaddrinfo(host.name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"{host.shown} is not reached: the name is not resolved: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _summed_up(troubles: list[DistlockError]) -> DistlockError:
    """As long as one of several hosts may come back, what the others say is not final."""
    passing = [error for error in troubles if isinstance(error, Unavailable) and not error.permanent]
    if len(troubles) > 1 and passing:
        return Unavailable("; ".join(dict.fromkeys(str(error) for error in troubles)))
    final = [error for error in troubles if isinstance(error, Refused | ConfigurationError)]
    return (final or troubles)[0]
