"""Locks on a Redis that sentinels watch: ``redis+sentinel://``, ``rediss+sentinel://``.

The engine of redis.py, at whatever server the sentinels name as the master. A failover is followed within a request
or by the next one. It does not make the class any better: replication is asynchronous, so a new master may not know
of the last grants, and a master that is cut off goes on granting until it learns that it is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from .base import ConfigurationError, DistlockError, Grant, Mark, Refused, Unavailable
from .redis import RedisBackend
from .redis_group_probe import of_sentinels
from .redis_link import Link
from .redis_probe import look, named, probe_of
from .redis_retry import Attempts
from .redis_url import at, database, parse_several
from .url_parts import wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .base import Environment
    from .probe import Probe
    from .redis_link import Answer
    from .redis_script import Call
    from .redis_url import Server

Place = tuple[str, int]
_QUESTION = "SENTINEL", "GET-MASTER-ADDR-BY-NAME"
_PORT = 26379
_SENTINEL = 0.5
"""Seconds that one sentinel gets before the next is asked."""
_CHECK = 0.3
"""Seconds before a holder's request for asking whether the master is still the same."""


class Sentinels:
    """Who the master of a service is. A sentinel that does not take its own login, or wants one and has none, is tried
    with that of the servers: most setups have one password."""

    def __init__(self, servers: Sequence[Server], service: str, login: Server, clock: Callable[[], float]) -> None:
        self.service = service
        self._login = login
        self._clock = clock
        self._servers = list(servers)
        self._links: dict[Server, Link] = {}

    @property
    def address(self) -> str:
        return f"{','.join(server.address for server in self._servers)}/{self.service}"

    def masters(self, until: float) -> Iterator[Place]:
        """What each sentinel names, one after the other, last those that did not answer; raises Unavailable, Refused or
        ConfigurationError when nobody has named any."""
        problems: list[DistlockError] = []
        named = unknown = False
        for server in list(self._servers):
            try:
                place = self._ask(server, min(until, self._clock() + _SENTINEL))
            except (Unavailable, Refused) as error:
                problems.append(error)
                self._servers.remove(server)
                self._servers.append(server)
                continue
            if place is None:
                unknown = True
                continue
            named = True
            yield place
        if named:
            return
        if unknown and not problems:
            raise ConfigurationError(f"the sentinels at {self.address} know no master of that name")
        first = next((problem for problem in problems if isinstance(problem, Refused)), problems[0])
        message = f"no sentinel names a master of {self.address}: {first}"
        if isinstance(first, Refused):
            raise Refused(message) from first
        useless = all(isinstance(problem, Unavailable) and problem.permanent for problem in problems)
        raise Unavailable(message, permanent=useless) from first

    def reached(self, until: float) -> Iterator[tuple[str, Link | DistlockError]]:
        """Each of them, or why it cannot be asked."""
        for server in list(self._servers):
            limit = min(until, self._clock() + _SENTINEL)
            try:
                self._ask(server, limit)
            except DistlockError as error:
                yield server.address, error
            else:
                yield server.address, self._links[server]

    def _ask(self, server: Server, until: float) -> Place | None:
        link = self._links.setdefault(server, Link(server, self._clock))
        try:
            answer = link.tell(until, *_QUESTION, self.service)
        except Refused:
            if self._login.password is None or server.password is not None:
                raise
            both = server._replace(user=self._login.user, password=self._login.password)
            link = self._links[server] = Link(both, self._clock)
            answer = link.tell(until, *_QUESTION, self.service)
        return (answer[0].decode(), int(answer[1])) if answer else None

    def close(self) -> None:
        for link in self._links.values():
            link.close()


class SentinelLink:
    """A Reach: to the one server that is the master now, by its own word too."""

    def __init__(self, sentinels: Sentinels, login: Server, clock: Callable[[], float]) -> None:
        self.sentinels = sentinels
        self._login = login
        self._clock = clock
        self._place: Place | None = None
        self._master: Link | None = None

    @property
    def address(self) -> str:
        return self._master.address if self._master else self.sentinels.address

    @property
    def sent_at(self) -> float:
        return self._master.sent_at if self._master else 0.0

    def connect(self, key: str, until: float) -> None:
        """Confirmed by a sentinel: after a failover the old master may serve for another ten seconds, and would grant
        anew what the new one keeps as held."""

        known = self._master

        def confirm(link: Link, limit: float) -> None:
            if link is known and next(self.sentinels.masters(limit)) != self._place:
                raise Unavailable(f"{link.address} is the master no more")

        self._tried(until, confirm)

    def ask(self, call: Call, until: float, channel: str | None = None) -> Answer:
        return self._tried(until, lambda link, limit: link.ask(call, limit, channel))

    def _tried(self, until: float, do: Callable[[Link, float], Answer]) -> Answer:
        attempts = Attempts(self._clock, until)
        while True:
            try:
                limit = attempts.until()
                return do(self._found(limit), limit)
            except Unavailable as error:
                self._forget()
                attempts.pause(error)

    def check(self, until: float) -> None:
        """For a holder: forget the master if a sentinel names another one. Sentinels that do not answer change
        nothing, or they could end every job."""
        if self._master is not None:
            try:
                if next(self.sentinels.masters(until)) != self._place:
                    self._forget()
            except DistlockError:
                pass

    def _found(self, until: float) -> Link:
        if self._master is not None and self._master.descriptor is not None:
            return self._master
        self._forget()
        problem: Unavailable | None = None
        for place in self.sentinels.masters(until):
            link = Link(at(self._login, *place), self._clock, resend=False, master=True)
            try:
                link.connect("", until)
            except Unavailable as error:  # dead, or none any more: another sentinel may know better
                problem = problem or error
            else:
                self._place, self._master = place, link
                return link
        assert problem is not None  # masters() has named one, or raised
        raise problem

    def _forget(self) -> None:
        master, self._master = self._master, None
        if master is not None:
            master.close()

    def heard(self, server_time: int) -> None:
        if self._master is not None:
            self._master.heard(server_time)

    def masters(self, until: float) -> Sequence[Link]:
        self.connect("", until)
        assert self._master is not None
        return [self._master]

    def listening(self, channel: str) -> Link | None:
        return self._master.listening(channel) if self._master else None

    def unsubscribe(self, channel: str) -> None:
        if self._master is not None:
            self._master.unsubscribe(channel)

    def close(self) -> None:
        self._forget()
        self.sentinels.close()


class RedisSentinelBackend(RedisBackend):
    exclusive_until: ClassVar[str] = (
        "the lease ends by the master's clock, as long as the master keeps its data and stays the master: replication"
        " is asynchronous, so a failover can grant twice"
    )

    def __init__(self, reach: SentinelLink, clock: Callable[[], float]) -> None:
        super().__init__(reach, clock)
        self._master = reach

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        """``…://[USER[:PASSWORD]@]HOST[:PORT],…/SERVICE[/DB]``. The login is for the servers; sentinels get
        ``?sentinel_user=&sentinel_password=``."""
        scheme = url.partition(":")[0]
        places = parse_several(url, _PORT, ("sentinel_user", "sentinel_password"))
        service, _, db = places.path.partition("/")
        if not service:
            raise wrong(scheme, "the name of the master stands behind the sentinels: h1,h2/mymaster")
        login = places.servers[0]
        password = environment.password if login.password is None else login.password
        user, secret = places.options.get("sentinel_user"), places.options.get("sentinel_password")
        sentinels = [server._replace(user=user, password=secret) for server in places.servers]
        master = login._replace(db=database(scheme, db), password=password)
        clock = environment.clock
        return cls(SentinelLink(Sentinels(sentinels, service, master, clock), master, clock), clock)

    def renew(self, grant: Grant, timeout: float) -> Grant:
        return super().renew(grant, self._checked(timeout))

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        super().mark(grant, mark, self._checked(timeout))

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        super().release(grant, self._checked(timeout), marks, keep_for)

    def probe(self, timeout: float) -> Probe:
        until = self.clock() + timeout
        sentinels = self._master.sentinels
        looked = [look(link, until) for link in self.reach.masters(until)]
        asked = [*sentinels.reached(until)]
        server = (
            f"{named(looked)}, master {looked[0].address} of {sentinels.service!r}, named by {len(asked)} sentinels"
        )
        return probe_of(server, looked, of_sentinels(asked, sentinels.service, until))

    def _checked(self, timeout: float) -> float:
        """Seconds that are left of it. What a master is told that was replaced, nobody will know."""
        until = self.clock() + timeout
        self._master.check(self.clock() + min(_CHECK, timeout / 4))
        return until - self.clock()
