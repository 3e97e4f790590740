"""What is told of a run besides its own words: events to the log, and one record for journal and metrics.

Kept by the renewer. Nothing in here raises, and nothing waits before the lock was given back.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from .backends.base import Busy, ConfigurationError, DistlockError, LeaseLost, Refused, Unavailable
from .deadline import hard_deadline
from .errors import Skipped
from .holders import each_holder
from .measures import UNLOCKED, Renewals, Run
from .state import state_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .backends.base import Grant, LockState
    from .event_log import EventLog, Value
    from .log_target import LogTarget

_PREPARE_AFTER = 0.25
_NO_ANSWER = "the backend did not answer"
_LOG = 1.0
"""Seconds that the last lines of the log may take."""


class Keeping(NamedTuple):
    """Where accounts go."""

    log: LogTarget | None = None
    journal: bool = True
    runs: int = 10_000
    seconds: float = 90 * 86400.0
    textfile: str | None = None

    def plain(self) -> tuple[object, ...]:
        """For a process of the same interpreter."""
        return (self.log and tuple(self.log), *self[1:])

    @classmethod
    def of_plain(cls, plain: Sequence[Any]) -> Self:
        from .log_target import LogTarget

        log, *others = plain
        return cls(log and LogTarget(*log), *others)


class Inherited(NamedTuple):
    """What the supervisor knows of a start whose renewer is dead."""

    waited: float = 0.0
    at: float = 0.0
    token: int | None = None
    holder_index: int | None = None
    is_locked: bool = True
    """False of a start without a lock (--fail-open)."""


class Account:
    """Of one run. ``note`` is told what could not be written."""

    def __init__(
        self,
        keeping: Keeping,
        *,
        name: str,
        backend: str,
        owner: str,
        pid: int,
        label: str | None,
        ttl: float,
        grace: float,
        clock: Callable[[], float],
        note: Callable[[str], None],
        tells_index: bool = False,
    ) -> None:
        """``tells_index``: there may be several holders, of which this is one."""
        self._keeping = keeping
        self._tells_index = tells_index
        self._clock = clock
        self._note = note
        self._began = clock()
        self._granted = 0.0
        self.renewals = Renewals()
        self._run = Run(name, backend, owner, pid, label, ttl, "error", time.time(), 0.0)
        self._soft = hard_deadline(0.0, ttl) - grace
        self._ran_since: float | None = None
        self._log = self._opened_log(keeping.log) if keeping.log else None

    def _opened_log(self, target: LogTarget) -> EventLog | None:
        from .event_log import EventLog

        run = self._run
        common: dict[str, Value] = {"lock": run.name, "backend": run.backend, "owner": run.owner, "label": run.label}
        try:
            return EventLog(target, common, run.pid, self._note)
        except RuntimeError as error:  # no thread to be had
            self._note(f"--log-to: {error}")
            return None

    def event(self, event: str, **fields: Value) -> None:
        if self._log:
            self._log.emit(event, fields)

    # -- the story, as the renewer comes to know it ------------------------------------------------------------------

    def asking(self) -> None:
        """The first attempt begins; what was before, such as --jitter, is no waiting."""
        self._began = self._clock()

    def waiting(self, state: LockState) -> None:
        holder = state.holder
        self.event(
            "waiting",
            holder=f"{holder.host}:{holder.pid}" if holder else None,
            holder_token=state.token if state.held else None,
            holders=f"{len(each_holder(state))}/{state.max_holders}" if state.max_holders > 1 else None,
        )

    def granted(self, grant: Grant) -> None:
        self._granted = self._clock()
        self._run = self._run._replace(
            granted_at=time.time(),
            waited=self._granted - self._began,
            token=grant.token,
            holder_index=grant.holder_index if self._tells_index else None,
            outcome="killed",
            slack=self._soft - grant.ttl / 3,
        )
        self.event(
            "granted",
            token=grant.token,
            holder_index=self._run.holder_index,
            waited=round(self._run.waited, 3),
        )

    def unlocked(self, reason: str) -> None:
        """--fail-open: the command runs on without a lock, or from the start."""
        self.event("unlocked", token=self._run.token, reason=reason)
        if self._run.granted_at is None:
            self._run = self._run._replace(outcome=UNLOCKED, reason=reason)

    def started(self) -> None:
        """The command."""
        self._ran_since = self._clock()

    def renewal_failed(self, line: str) -> None:
        self.renewals.failures += 1
        reason = line.partition(": ")[2] or line  # the event's name says what failed
        self.event("renewal failed", token=self._run.token, reason=reason)

    def lost(self, reason: str) -> None:
        if self._run.outcome != "lost":
            self._run = self._run._replace(outcome="lost", reason=reason)
            self.event("lost", token=self._run.token, reason=reason)

    def stopped(self, what: str) -> None:
        """Everything of the run was told to end, or was ended."""
        self.event("stopped", token=self._run.token, by=what)

    def ended(self, status: int, lost: str | None, unlocked: str = "") -> None:
        """``status`` as of wait(2); negative if there was no command. ``unlocked``: why it had no lock in the end."""
        if lost is not None:
            self.lost(lost)
        elif unlocked:
            self._run = self._run._replace(outcome=UNLOCKED, reason=unlocked)
        code = None
        if status >= 0:
            code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        outcome = self._run.outcome
        if outcome not in ("lost", UNLOCKED):
            outcome = "succeeded" if code == 0 else "failed"
        self._run = self._run._replace(exit_code=code, outcome=outcome)
        if self._run.granted_at is None:
            self.event("ended", code=code)

    @property
    def ran_for(self) -> float | None:
        """Seconds since the start of a run that has succeeded, as the backend is told with the release."""
        done = self._run.outcome == "succeeded" and self._ran_since is not None
        return self._clock() - (self._ran_since or 0.0) if done else None

    def released(self, trouble: str) -> None:
        held = self._clock() - self._granted
        self._run = self._run._replace(held=held)
        if self._run.outcome != "lost":
            self.event(
                "not released" if trouble else "released",
                token=self._run.token,
                held=round(held, 3),
                code=self._run.exit_code,
                reason=trouble or None,
            )

    def not_had(self, error: BaseException | None) -> None:
        """The end of a run without a grant; None: a signal ended the waiting."""
        if self._run.granted_at is not None:
            if isinstance(error, LeaseLost):
                self.lost(str(error))
                return
            self._run = self._run._replace(outcome="error", held=self._clock() - self._granted, reason=str(error))
            return
        kinds = (
            (Busy, "busy"),
            (Skipped, "skipped"),
            (Unavailable, "unavailable"),
            (Refused, "refused"),
            (ConfigurationError, "misconfigured"),
        )
        outcome = "cancelled" if error is None else next((word for kind, word in kinds if isinstance(error, kind)), "")
        reason = str(error) if isinstance(error, DistlockError) else None
        self._run = self._run._replace(
            outcome=outcome or "error", waited=max(0.0, self._clock() - self._began), reason=reason
        )
        self.event("not had", outcome=self._run.outcome, waited=round(self._run.waited, 3), reason=reason)

    def inherit(self, granted: Inherited, status: int, lost: str | None, *, is_open: bool = False) -> None:
        """The whole story at its end. Renewals are not known."""
        held = self._clock() - granted.at
        if not granted.is_locked:
            self._run = self._run._replace(asked_at=time.time() - held - granted.waited, waited=granted.waited)
            self.ended(status, None, _NO_ANSWER)
            return
        self._run = self._run._replace(
            asked_at=time.time() - held - granted.waited,
            waited=granted.waited,
            granted_at=time.time() - held,
            held=held,
            token=granted.token,
            holder_index=granted.holder_index,
            outcome="killed",
        )
        self.ended(status, lost, _NO_ANSWER if is_open else "")
        self.event("not released", token=granted.token, held=round(held, 3), reason="the renewer was dead or stuck")

    # -- the end -----------------------------------------------------------------------------------------------------

    def prepare_soon(self) -> None:
        """Load what close() needs, in a thread, of a run that is not over at once: when it waits for the lock or its
        command runs nobody has to wait for that, when the lock is handed over somebody would."""
        if self._keeping.journal:
            timer = threading.Timer(_PREPARE_AFTER, self._prepare)
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:
                pass  # no thread to be had

    def _prepare(self) -> None:
        try:
            from . import journal  # noqa: F401

            if self._keeping.textfile:
                from . import metrics, textfile  # noqa: F401
        except ImportError:
            pass  # close() tells

    def close(self) -> None:
        """Everything else is over: nobody waits for the lock, and the command has ended."""
        run = self._run._replace(renewals=self.renewals)
        try:
            if self._keeping.journal:
                from .journal import FILE, Journal, Limits

                journal = Journal(state_directory() / FILE, Limits(self._keeping.runs, self._keeping.seconds))
                journal.add(run)
                if self._keeping.textfile:
                    from .textfile import write_textfile

                    write_textfile(self._keeping.textfile, journal)
        except (DistlockError, OSError, ImportError) as error:
            self._note(f"not recorded: {error}")
        if self._log:
            self._log.close(_LOG)
