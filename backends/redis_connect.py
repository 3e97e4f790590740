"""A connection of redis-py, made within a time-out."""

from __future__ import annotations

import ipaddress
import os
from functools import partial
from typing import TYPE_CHECKING, Any

import redis.connection
import redis.exceptions as its

from .redis_errors import is_drop

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from .redis_url import Server

Connection = Any  # redis-py's are not annotated
_REASON = 0.3


def connected(server: Server, left: Callable[[], float], pushed: Callable[[list[Any]], Any]) -> Connection:
    """``left`` says how many seconds there are, or raises; ``pushed`` gets what comes between the answers. Raises
    redis-py's errors."""
    try:
        return _new(server, left, pushed)
    except its.ConnectionError as error:
        if not server.tls or not is_drop(error):
            raise
        return _new(server, left, pushed, listen_first=True)


def _new(
    server: Server, left: Callable[[], float], pushed: Callable[[list[Any]], Any], *, listen_first: bool = False
) -> Connection:
    # Each of these may block: TCP, a second address of the same name, the TLS handshake.
    step = left() / (1 + (not server.path and not _is_address(server.host)) + server.tls)
    password = server.password if server.password is not None or server.user is None else ""
    options: dict[str, Any] = {
        "username": server.user,
        "password": password and os.fsencode(password),
        "socket_connect_timeout": step,
        "socket_timeout": step,
        "protocol": 3,
        "driver_info": None,  # two more round trips
        "redis_connect_func": partial(_log_in, server, left, listen_first),
    }
    kinds: Any = redis.connection
    if server.path:
        connection = kinds.UnixDomainSocketConnection(path=server.path, **options)
    elif not server.tls:
        connection = kinds.Connection(host=server.host, port=server.port, **options)
    else:
        # An empty passphrase, or OpenSSL would ask for one at the terminal.
        options.update(ssl_ca_certs=server.ca, ssl_certfile=server.cert, ssl_keyfile=server.key, ssl_password="")
        connection = kinds.SSLConnection(host=server.host, port=server.port, **options)
    connection.connect()
    connection._parser.set_pubsub_push_handler(pushed)
    return connection


def _log_in(server: Server, left: Callable[[], float], listen_first: bool, connection: Connection) -> None:
    if listen_first:
        _hear_why(connection._sock, min(_REASON, left()))
    connection._sock.settimeout(left())
    connection.on_connect()
    if server.db:
        connection._sock.settimeout(left())
        connection.send_command("SELECT", server.db)
        connection.read_response()


def _hear_why(socket: ssl.SSLSocket, seconds: float) -> None:
    """With TLS 1.3 a server refuses our certificate when the handshake is over for us, and hangs up. Who writes then
    learns of the end only; who reads, of the reason. Raises redis-py's ConnectionError."""
    socket.settimeout(seconds)
    try:
        socket.recv(1)
    except TimeoutError:
        pass  # nothing to say: it was something else
    except OSError as error:
        raise its.ConnectionError(str(error)) from error


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
