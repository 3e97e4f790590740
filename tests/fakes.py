"""A world without real time: a clock that tests move, and an engine in memory whose fate they write down."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from typing import ClassVar, Self, final

from distlock.backends.base import (
    Backend,
    Client,
    Environment,
    Grant,
    Holding,
    LockState,
    Mark,
    Marked,
    Request,
    Safety,
    Ticket,
)
from distlock.backends.probe import Probe
from distlock.backends.several import other_holders, state_of_several
from distlock.errors import Cancelled


class FakeClock:
    """``at`` says what happens when. Whoever waits moves the clock up to it; no real time goes by."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._events: list[tuple[float, Callable[[], object]]] = []

    def __call__(self) -> float:
        return self.now

    def at(self, instant: float, event: Callable[[], object]) -> None:
        self._events = sorted([*self._events, (instant, event)], key=lambda entry: entry[0])

    def sleep(self, seconds: float, wake: Callable[[], bool]) -> None:
        """Until ``wake`` says so, for ``seconds`` at most."""
        end = self.now + seconds
        while not wake():
            if not self._events or self._events[0][0] > end:
                self.now = end
                assert self.now < 1e7, "this would wait for ever"
                return
            instant, event = self._events.pop(0)
            self.now = max(self.now, instant)
            event()

    def pause(self, seconds: float, cancel: int) -> None:
        """What acquisition.pause does, in this world's time."""
        self.sleep(max(0.0, seconds), lambda: is_readable(cancel))
        if is_readable(cancel):
            raise Cancelled


def is_readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


def a_client(owner: str, label: str | None = None) -> Client:
    return Client(owner, "web1", 4711, "deploy", "backup.sh", label, since=1700000000.5)


def a_grant(valid_from: float, ttl: float = 30.0) -> Grant:
    return Grant("nightly", "me", 7, ttl, valid_from)


@final
class ScriptedBackend(Backend):
    """One lock, free at first. Tests set the attributes, at once or by ``clock.at``."""

    safety: ClassVar[Safety] = "efficiency"
    exclusive_until = "the test says otherwise"
    token_scope = "one test"
    fifo = False
    keeps = True

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.held = False
        self.holder: Client | None = None
        self.token: int | None = 41
        self.max_holders = 1
        """As those say who hold it."""
        self.others: tuple[Holding, ...] = ()
        """Who else holds it, of several."""
        self.failure: BaseException | None = None
        """Raised by every request while it is set."""
        self.inspect_failure: BaseException | None = None
        self.nudged = False
        self.on_renew: Callable[[Grant, float], Grant] = lambda grant, _: grant._replace(valid_from=clock())
        self.alarm_descriptor: int | None = None
        self.faults: tuple[str, ...] = ()
        self.probed = Probe("a scripted engine", None, ())
        self.log: list[tuple[float, str]] = []
        """Each request, with its instant."""
        self.tickets: list[ScriptedTicket] = []

    def hold(self, holder: Client | None) -> None:
        self.held, self.holder = True, holder

    def free(self) -> None:
        self.held, self.holder = False, None

    def fail(self, failure: BaseException | None) -> None:
        self.failure = failure

    def nudge(self) -> None:
        """Wake the waiter for no reason."""
        self.nudged = True

    def note(self, request: str) -> None:
        self.log.append((self.clock(), request))
        if self.failure is not None:
            raise self.failure

    def times(self, request: str) -> list[float]:
        return [instant for instant, what in self.log if what == request]

    @classmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        raise AssertionError(f"nobody opens {url} here, in {environment}")

    def enqueue(self, request: Request) -> Ticket:
        self.note("enqueue")
        self.tickets.append(ScriptedTicket(self, request))
        return self.tickets[-1]

    def renew(self, grant: Grant, timeout: float) -> Grant:
        self.note("renew")
        return self.on_renew(grant, timeout)

    def alarm(self, grant: Grant) -> int | None:
        return self.alarm_descriptor

    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        assert timeout > 0
        self.note("shortcomings")
        return self.faults

    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        assert timeout > 0
        assert not marks
        assert not keep_for
        self.note(f"release {grant.token}")

    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        raise AssertionError(f"nobody marks {mark} under {grant} here, within {timeout} s or not")

    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        raise AssertionError(f"nobody asks for the mark {slot} of {name} here, within {timeout} s or not")

    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        raise AssertionError(f"nobody revokes {name} ({token}, {owner}) here: {by}, {timeout}, {now}")

    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        raise AssertionError(f"nobody fences {resource} ({index}, {token}) here, within {timeout} s or not")

    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        raise AssertionError(f"nobody resets {resource} ({index}) here, within {timeout} s or not")

    def inspect(self, name: str, timeout: float) -> LockState:
        assert timeout > 0
        self.note("inspect")
        if self.inspect_failure is not None:
            raise self.inspect_failure
        if self.others:
            return state_of_several(name, self.max_holders, self.others, (), None)
        return LockState(name, self.held, self.token, self.holder, 30.0, 20.0, (), max_holders=self.max_holders)

    def locks(self, timeout: float) -> Iterator[LockState]:
        raise AssertionError(f"nobody lists locks here, within {timeout} s or not")

    def probe(self, timeout: float) -> Probe:
        assert timeout > 0
        self.note("probe")
        return self.probed

    def purge(
        self, wanted: Callable[[str], bool], unused_for: float, timeout: float, *, fences: bool = False
    ) -> Iterator[str]:
        raise AssertionError(f"nobody purges {wanted} here: {unused_for}, {timeout}, {fences}")

    def places(self, name: str) -> tuple[str, ...]:
        raise AssertionError(f"nobody asks where {name} is kept")

    def close(self) -> None:
        raise AssertionError("whoever opened the backend closes it")


@final
class ScriptedTicket(Ticket):
    def __init__(self, backend: ScriptedBackend, request: Request) -> None:
        self._backend = backend
        self._request = request
        self.closed = False

    def poll(self) -> Grant | None:
        self._backend.note("poll")
        if self._backend.held and self._backend.max_holders != self._request.holders:
            raise other_holders(self._request.name, self._backend.max_holders, self._request.holders)
        if self._backend.held:
            return None
        self._backend.hold(self._request.client)
        return Grant(self._request.name, self._request.client.owner, 42, self._request.ttl, self._backend.clock())

    def wait(self, timeout: float, cancel: int) -> None:
        backend = self._backend
        backend.note("wait")
        backend.nudged = False
        backend.clock.sleep(
            timeout, lambda: not backend.held or backend.nudged or backend.failure is not None or is_readable(cancel)
        )
        if backend.failure is not None:
            raise backend.failure

    def close(self) -> None:
        self.closed = True
