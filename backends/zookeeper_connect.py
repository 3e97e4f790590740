"""TCP or TLS connections to the servers of an ensemble, one after the other, within a time-out."""

from __future__ import annotations

import random
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any

from .zookeeper_errors import FAILURES, translated

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from .base import DistlockError
    from .zookeeper_url import Ensemble, Server


class Servers:
    """Remembers which one answered last. In random order at first, so that clients spread over the ensemble."""

    def __init__(self, ensemble: Ensemble, clock: Callable[[], float]) -> None:
        self.ensemble = ensemble
        self.clock = clock
        self._addresses: dict[Server, list[Any]] = {}
        self._order = random.sample(ensemble.servers, len(ensemble.servers))

    @property
    def known(self) -> int:
        """How many servers the list leads to: a name may have several addresses, and of two kinds."""
        return sum(
            max(Counter(family for family, *_ in self._addresses[server]).values()) if server in self._addresses else 1
            for server in self.ensemble.servers
        )

    def first(self, until: float, use: Callable[[socket.socket, float], None]) -> Server:
        """Connect and ``use`` the connection, which has to be done with the server by the instant it is told: one that
        hangs leaves time for the others. Raises what the last of them failed with, and what else comes of ``use``."""
        servers = list(self._order)
        problem: DistlockError | None = None
        cause: Exception | None = None
        for index, server in enumerate(servers):
            now = self.clock()
            share = now + (until - now) / (len(servers) - index)
            try:
                connected = self.connected(server, share)
                try:
                    use(connected, share)
                except BaseException:
                    connected.close()
                    raise
            except FAILURES as error:
                problem, cause = translated(error, server.address), error
                continue
            self._order.remove(server)
            self._order.insert(0, server)
            return server
        assert problem is not None
        raise problem from cause

    def connected(self, server: Server, until: float) -> socket.socket:
        """Raises OSError."""
        # Each renewal is a connection: a resolver that hangs, which we cannot bound, is asked only if it has to be.
        found = self._addresses.pop(server, None)
        if found is None:
            found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
        context = self._context() if self.ensemble.tls else None
        last: OSError = OSError(f"no address of {server.host}")
        for index, (family, kind, protocol, _, address) in enumerate(found):
            one = socket.socket(family, kind, protocol)
            try:
                now = self.clock()
                one.settimeout(max(0.001, (until - now) / (len(found) - index)))
                one.connect(address)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if context is not None:
                    one.settimeout(max(0.001, until - self.clock()))
                    one = context.wrap_socket(one, server_hostname=server.host)
                self._addresses[server] = found
                return one
            except OSError as error:
                one.close()
                last = error
        raise last

    def _context(self) -> ssl.SSLContext:
        import ssl  # some milliseconds, for TLS alone

        context = ssl.create_default_context(cafile=self.ensemble.ca)
        if self.ensemble.cert:
            # An empty passphrase, or OpenSSL would ask for one at the terminal.
            context.load_cert_chain(self.ensemble.cert, self.ensemble.key, password="")
        return context
