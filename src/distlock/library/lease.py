"""The lease in the hands of a Python program."""

from __future__ import annotations

from ..deadline import default_grace, hard_deadline
from ..durations import format_duration
from ..errors import LeaseExpiring, UsageError
from ..quoting import quoted
from .watch import Watch


class Lost:
    """Like a threading.Event that is set when the lease is lost, and never cleared.

    Set when the backend says that somebody else has the lock, when the lease was not renewed in time, or when nothing
    renews it any more. Not by leaving the context: whoever waits then is told False.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def is_set(self) -> bool:
        """Never blocks."""
        return self._watch.loss() is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Until the lease is lost (True), for ``timeout`` seconds, or until the lock is given back (False)."""
        return self._watch.wait(timeout)

    @property
    def reason(self) -> str | None:
        """For people. None while the lease is not lost."""
        return self._watch.loss()

    def __repr__(self) -> str:
        return f"<Lost: {self._watch.loss() or 'not set'}>"


class Lease:
    """A lock held by this process. Any thread may use it.

    It tells; it stops nothing. A thread that goes on after the lease is lost writes at the same time as the next
    holder, unless it asks (``checkpoint``) before each side effect, or the resource refuses an old ``token``.

    It is this process's alone: in a forked child it counts as lost.
    """

    def __init__(
        self, name: str, owner: str, token: int | None, ttl: float, watch: Watch, holder_index: int = 0
    ) -> None:
        self.name = name
        self.owner = owner
        """Random id of this holding."""
        self.token = token
        """Fencing token: grows with every grant of the lock. None where the backend has none."""
        self.holder_index = holder_index
        """From 0 to ``max_holders`` - 1; no two holders have the same at once."""
        self.ttl = ttl
        self.lost = Lost(watch)
        self._watch = watch

    def remaining(self) -> float:
        """Seconds for which nobody else can be granted the lock, whatever happens; 0.0 once the lease is lost or given
        back. Renewals set it back to nearly ``ttl`` each third of it. By CLOCK_BOOTTIME, with a margin. Never blocks.
        """
        return self._watch.remaining()

    def checkpoint(self, need: float | None = None) -> None:
        """Call it before each side effect. Raises LeaseExpiring if less than ``need`` seconds of the lease are left, or
        none: the side effect must not begin then, and has to end within ``need`` seconds otherwise.

        The default is a sixth of the TTL, at most 5 s. Never blocks. What is between this call and the side effect (a
        frozen process, a slow network) it cannot see: that is what the token is for.
        """
        need = default_grace(self.ttl) if need is None else need
        if not need >= 0:
            raise UsageError(f"need={need!r} is not a number of seconds")
        left = self._watch.remaining()
        if left > 0 and left >= need:
            return
        if (reason := self._watch.loss()) is not None:
            raise LeaseExpiring(f"{quoted(self.name)}: lease lost: {reason}")
        if left == 0:
            raise LeaseExpiring(f"{quoted(self.name)}: the lock was given back")
        most = hard_deadline(0.0, self.ttl)
        never = f"; a lease of {format_duration(self.ttl)} never has more than {most:.3g}s" if need > most else ""
        raise LeaseExpiring(f"{quoted(self.name)}: {left:.3f}s of the lease are left, {need:g}s are needed{never}")

    def __repr__(self) -> str:
        return f"<Lease {quoted(self.name)} token={self.token} remaining={self.remaining():.3f}>"
