"""The contract of a lock engine, and the errors that all of them share.

An engine keeps locks somewhere: a holder, a queue of waiters and a fencing token a lock. The core decides when to
try, wait, renew and give up; an engine only answers. Every engine keeps these promises, and the contract suite in
tests/ holds each of them to it on a real server:
* at most one unexpired grant of a lock at any time (of one for several ``holders``: as many, and each with an index of
  its own), judged by the server's clock, never by a client's wall clock;
* renew and release compare the owner and act in one atomic step;
* tokens of one lock strictly grow, over release, expiry, crash and restart;
* nothing is stored without an expiry, and nothing is left behind but one bounded record a lock;
* every call ends within its time-out, by an answer or by an error of this file.

An engine is used by one thread at a time. All clock values are seconds of CLOCK_BOOTTIME on this machine.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Literal, NamedTuple, Protocol, Self

from .probe import Probe

Safety = Literal["efficiency", "correctness"]


class DistlockError(Exception):
    """Root of the family. The message is one line for the user and names the lock, the value or the server."""


class Busy(DistlockError):
    """Somebody else holds the lock and the time to wait for it is over."""


class Unavailable(DistlockError):
    """The engine cannot answer now. ``permanent`` says that trying again without a repair is useless."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        super().__init__(message)
        self.permanent = permanent


class Refused(DistlockError):
    """The engine answered and said no: login, permission, or a safety class it does not have."""


class ConfigurationError(DistlockError):
    """A backend URL or a setting that cannot work as written."""


class OtherHolders(ConfigurationError):
    """The lock is held by somebody who says another number of holders: see several.py."""


class LeaseLost(DistlockError):
    """The engine says that this owner does not hold the lock (any more): final, whatever comes later. The message goes
    on after "lease lost: "."""


class Unmarked(DistlockError):
    """The lock was given back, but a mark that was to go with it could not be written."""


class Revoked(LeaseLost):
    """An operator took the lease away. The lock stays this owner's until it is released or the TTL is over, so that
    nobody else gets it before the job is dead."""


class Client(NamedTuple):
    """Who holds or waits, as operators see it. ``pid`` is the supervisor's; ``command`` is argv[0] only."""

    owner: str
    host: str
    pid: int
    user: str
    command: str
    label: str | None
    since: float
    """Wall clock (Unix time) of the grant or of queueing. Shown to people, never compared."""


class Request(NamedTuple):
    name: str
    ttl: float
    client: Client
    holders: int = 1
    """How many may hold it at once. While it is held, only requests that say the same are served."""


class Grant(NamedTuple):
    """A lease. It ends no earlier than ``valid_from + ttl``: ``valid_from`` is the instant BEFORE the last answered
    request that restarted the server's count was sent."""

    name: str
    owner: str
    token: int | None
    ttl: float
    valid_from: float
    holders: int = 1
    holder_index: int = 0
    """From 0 to ``holders`` - 1, which is the request's: no two unexpired grants of a lock have the same."""


class Mark(NamedTuple):
    """That something is done under a lock, for later runs to see. A slot has one mark: a later one replaces it."""

    slot: str
    """SUCCESS, or a word of the caller's choice of at most 200 bytes."""
    ago: float
    """Seconds since what is marked began."""
    keep: float
    """Seconds from now for which it is remembered. Forgotten within a day after that, or at the next mark."""


SUCCESS = "success"
"""The slot of the last run of a lock that succeeded."""
SUCCESS_KEPT = 400 * 86400.0
"""Seconds for which that is remembered: longer than a year, of yearly jobs."""


class Marked(NamedTuple):
    """A mark as the engine has it."""

    at: float
    """Unix time by the engine's clock at which what is marked began. Shown to people, never compared."""
    age: float
    """Seconds since then, by the same clock."""


class Holding(NamedTuple):
    """One of several holders of a lock."""

    holder_index: int
    token: int | None
    holder: Client
    ttl: float
    expires_in: float
    kept: bool = False
    revoked_by: str | None = None


class LockState(NamedTuple):
    """One lock as the engine sees it now. A foreign holder (one that is not distlock) is held with holder None."""

    name: str
    held: bool
    token: int | None
    holder: Client | None
    ttl: float | None
    expires_in: float | None
    waiters: tuple[Client, ...]
    last_success: Marked | None = None
    kept: bool = False
    """Held by nobody: its last holder's run is over and asked for the lock to be kept."""
    revoked_by: str | None = None
    """The operator who took the lease away; it ends as soon as the holder's job is dead."""
    max_holders: int = 1
    """How many may hold it at once, as those say who hold it."""
    holdings: tuple[Holding, ...] = ()
    """If more than one: all holders, by index. The fields above show the first."""


class Environment(NamedTuple):
    """What an engine may use of the process it runs in."""

    clock: Callable[[], float]
    state_directory: Callable[[], Path]
    """Where embedded engines keep their files; asked for only by those. Raises ConfigurationError."""
    password: str | None = None
    """For a URL that has none. As os.environ has it: a byte that is no text is escaped."""


class Ticket(Protocol):
    """A place in the queue of one lock. Leaving the context without a grant gives the place up."""

    @abstractmethod
    def poll(self) -> Grant | None:
        """Try ONCE: the grant, or None while the lock is somebody else's or somebody is before us.
        Raises Unavailable, Refused; OtherHolders while it is held by a distlock that asked for another number."""

    @abstractmethod
    def wait(self, timeout: float, cancel: int) -> None:
        """Return when polling may have become worth while, after ``timeout`` seconds at the latest, and at once when
        the descriptor ``cancel`` is readable. Returning early for no reason is allowed. Raises Unavailable."""

    @abstractmethod
    def close(self) -> None:
        """Leave the queue; does nothing after a grant or a second time. Never raises."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class Backend(Protocol):
    """One engine at one URL. Constructing it contacts nothing."""

    safety: ClassVar[Safety]
    exclusive_until: ClassVar[str]
    """Until when nobody else is granted the lock, and what ends that early: a clause for people."""
    token_scope: ClassVar[str]
    """One sentence: over what the tokens of a lock grow. Empty: there are none."""
    fifo: ClassVar[bool]
    keeps: ClassVar[bool]
    """Whether a lock can outlive the process that held it (``keep_for``)."""

    @classmethod
    @abstractmethod
    def from_url(cls, url: str, environment: Environment) -> Self:
        """Raises ConfigurationError when the URL cannot work."""

    def prepare(self, timeout: float) -> tuple[str, ...]:
        """Make what the server needs before the first lock, as locks do on first use if allowed to, and check that it
        may be used: what there is now, a clause each for people. Raises Unavailable, Refused."""
        return ()

    @abstractmethod
    def enqueue(self, request: Request) -> Ticket:
        """Take a place in the queue of ``request.name``. Raises Unavailable, Refused."""

    @abstractmethod
    def renew(self, grant: Grant, timeout: float) -> Grant:
        """Start the lease's TTL anew if ``grant.owner`` still holds it. Raises LeaseLost, Unavailable, Refused."""

    @abstractmethod
    def alarm(self, grant: Grant) -> int | None:
        """A descriptor, perhaps another after each renewal, that becomes readable when the engine was told something of
        the lease since then: its key was removed, its session ended. ``renew`` is asked at once, and decides; it takes
        the news off the descriptor. None from an engine that is told nothing."""

    @abstractmethod
    def release(self, grant: Grant, timeout: float, marks: tuple[Mark, ...] = (), keep_for: float = 0.0) -> None:
        """Free the lock if ``grant.owner`` still holds it and wake the next waiter; touch nothing otherwise. In the
        same step ``marks`` are written, and with ``keep_for`` it is kept for so many seconds more: nobody's, and had by
        nobody. Raises Unavailable, Refused; ValueError if it is to be kept where the engine cannot (``keeps``);
        Unmarked if the lock was given back, but a mark other than SUCCESS could not be written: a release does not fail
        for want of room for one."""

    @abstractmethod
    def mark(self, grant: Grant, mark: Mark, timeout: float) -> None:
        """Write a mark while ``grant.owner`` holds the lock. Raises LeaseLost, Unavailable, Refused."""

    @abstractmethod
    def marked(self, name: str, slot: str, timeout: float) -> Marked | None:
        """The mark of this slot; None if there is none, or it need not be remembered any more. By the server's clock
        where it has one. Raises Unavailable, Refused."""

    @abstractmethod
    def revoke(self, name: str, token: int | None, owner: str | None, by: str, timeout: float, *, now: bool) -> bool:
        """Take the lease away from the holder with this token (of one without: with this owner id). Its renewals raise
        Revoked from then on, its alarm goes off if the engine has one, and it ends when it is released or its TTL is
        over. With ``now``, and for a lock that is kept, it ends at once, the next waiter is woken, and renewals raise
        LeaseLost. False, and nothing is changed, if this is not the holder. Raises Unavailable, Refused."""

    @abstractmethod
    def inspect(self, name: str, timeout: float) -> LockState:
        """One lock, waiters in the order in which they will be served. A name never seen is free."""

    @abstractmethod
    def locks(self, timeout: float) -> Iterator[LockState]:
        """Every lock the engine has a record of, free ones too, in no particular order."""

    @abstractmethod
    def shortcomings(self, timeout: float) -> tuple[str, ...]:
        """What of the server's settings as they are now keeps the engine from its class: a clause each, for people.
        Raises Unavailable, Refused."""

    @abstractmethod
    def advance_fence(self, resource: str, index: int, token: int, timeout: float) -> int:
        """Atomically remember ``token`` as the greatest that this resource has seen, if it is; in a register for each
        index of a holder. Gives the greatest there is then: a token below it is stale. On disk, or agreed on, when this
        returns. Raises Refused from an engine that may forget; Unavailable."""

    @abstractmethod
    def reset_fence(self, resource: str, index: int, timeout: float) -> None:
        """Forget what advance_fence remembered. Raises as that."""

    @abstractmethod
    def probe(self, timeout: float) -> Probe:
        """What the server is, and what of its settings as they are now breaks locks. Changes nothing. Raises
        Unavailable, Refused."""

    @abstractmethod
    def purge(
        self, wanted: Callable[[str], bool], unused_for: float, timeout: float, *, fences: bool = False
    ) -> Iterator[str]:
        """Forget locks, and give their names: those ``wanted`` that nobody holds or waits for, that have no mark which
        is yet to be remembered, and were last granted or released at least so many seconds ago. Tokens granted later
        are greater than those forgotten. With ``fences``, fence registers go, instead of locks. Each request ends
        within the time-out. Raises Unavailable, Refused."""

    @abstractmethod
    def places(self, name: str) -> tuple[str, ...]:
        """Where the engine keeps this lock, for people: keys, tables, a path. Asks nobody."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and descriptors. Grants stay as they are. Never raises."""
