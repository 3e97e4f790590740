"""``--fail-open``: for jobs that must run although nobody can say whether they run alone.

A backend that is not reached ends nothing: neither before the start, when there is no lease at all, nor under a lease
that runs out unanswered. A backend that answers counts as ever: a lease that is somebody else's by then ends the child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .backends.base import DistlockError, LeaseLost
from .clock import TICK
from .renewal import Renewal

if TYPE_CHECKING:
    from collections.abc import Callable

    from .backends.base import Backend
    from .renewal import Schedule, Told

_EARLY = 3 * TICK
"""Seconds before the stop signal is due: the supervisor must know by then that it is not."""


class OpenRenewal(Renewal):
    """A renewal that goes on without a lease where a backend does not answer: ``on_open`` is told why, and the child
    has no deadline from then on. Where it answers again, the lease goes on as ever if it is still ours; if it ran out
    and is nobody's, nothing is done but to look who has it."""

    def __init__(
        self,
        backend: Backend,
        schedule: Schedule,
        clock: Callable[[], float],
        told: Told,
        on_open: Callable[[str], None],
    ) -> None:
        super().__init__(backend, schedule, clock, told)
        self._on_open = on_open
        self._look_at = 0.0

    def step(self) -> float | None:
        now = self._clock()
        if not self.is_open:
            soft = self._schedule.soft
            if not self.unreachable or self.lost or not soft - _EARLY <= now < soft:
                return super().step()  # also after a freeze: that says nothing of the backend
            self.is_open, self.open_because = True, self._last_trouble
            self._look_at = now
            self._on_open(self._last_trouble)
        if self.lost and not self.survivors:
            return TICK
        if now >= self._look_at:
            self._look_at = now + self.grant.ttl / 3
            try:
                grant = self._backend.renew(self.grant, self.grant.ttl / 3)
            except LeaseLost as error:
                return self._without_a_lease(error)
            except DistlockError:
                return TICK
            self._schedule.renewed(grant)
            self.is_open, self.unreachable, self.open_because = False, False, ""
            self._on_renewed(self._schedule.hard)
        return TICK

    def _without_a_lease(self, error: LeaseLost) -> float | None:
        """None if it is somebody else's, or was taken away."""
        if self._was_revoked(error):
            self._lose(str(error))
            return None
        try:
            state = self._backend.inspect(self.grant.name, self.grant.ttl / 3)
        except DistlockError:
            return TICK
        if state.held and not state.kept and (state.holder is None or state.holder.owner != self.grant.owner):
            self._lose(str(error))
            return None
        return TICK


class NoRenewal:
    """In the place of a renewal where there is no lease to keep."""

    lost = False
    revoked = False
    open_because = ""
    survivors = False

    def start(self) -> None:
        pass

    def stop(self, timeout: float) -> bool:
        return timeout >= 0
