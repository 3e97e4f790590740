"""The options of a run to a checked plan: what each value means, and which contradict each other."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from distlock.backends.base import Safety
from distlock.deadline import SHORTEST_TTL, default_grace, longest_grace
from distlock.durations import format_duration, parse_duration
from distlock.errors import UsageError
from distlock.quoting import quoted
from distlock.requirement import CLASSES, refuse_embedded_default
from distlock.supervise.plan import DESCENDANTS, Descendants, Plan

from .keeping_of_run import keeping_of
from .settings import fault
from .window_of_run import window_of

if TYPE_CHECKING:
    from distlock.backend_choice import Chosen
    from distlock.config import Config, Setting
    from distlock.supervise.command import Command
    from distlock.supervise.launch import Launch

    from .settings import Options


def plan_of(
    options: Options,
    lock: str,
    command: Command,
    environment: dict[bytes, bytes],
    backend: Chosen,
    launch: Launch,
    config: Config,
) -> Plan:
    """Raises UsageError, ConfigurationError, and Refused when nobody chose the backend of a correctness lock."""
    ttl = _ttl(options)
    wait = _wait(options)
    verbosity = _verbosity(options)
    require = _require(options, backend)
    return Plan(
        name=lock,
        owner=launch.owner,
        command=command,
        caller_environment=environment,
        backend=backend.url,
        backend_shown=backend.shown,
        password=backend.password,
        require=require,
        ttl=ttl,
        wait=wait,
        # Cron mails what is printed: a lock not waited for is no news, a wait in vain is a job that was missed.
        explain_conflict=wait != 0 or verbosity >= 1 or (verbosity == 0 and os.isatty(2)),
        grace=_grace(options, ttl),
        max_run=_max_run(options),
        min_hold=_duration(options.get("min-hold")),
        max_holders=_max_holders(options),
        window=window_of(options),
        fail_open=_fail_open(options, require),
        kill_signal=_signal(options.get("kill-signal")),
        jitter=_duration(options.get("jitter")),
        label=options.text("label"),
        descendants=_descendants(options.get("descendants")),
        verbosity=verbosity,
        keeping=keeping_of(config, options),
        strangers=launch.strangers,
    )


def _duration(setting: Setting) -> float:
    try:
        return parse_duration(str(setting.value))
    except UsageError as error:
        raise fault(setting, f"{setting.origin}: {error}") from None


def _ttl(options: Options) -> float:
    setting = options.get("ttl")
    ttl = _duration(setting)
    if ttl < SHORTEST_TTL:
        raise fault(
            setting,
            f"{setting.origin} {quoted(str(setting.value))} is too short: below {format_duration(SHORTEST_TTL)} an"
            " ordinary pause of a machine looks like a death",
        )
    return ttl


def _wait(options: Options) -> float | None:
    found = options.first_with("nonblock", "wait")
    at_once = found.get("nonblock")
    limit = None if (wait := found.get("wait")) is None else _duration(wait)
    if at_once and at_once.value and wait and limit:
        here = "-n" if at_once.file is None else at_once.origin
        raise fault(at_once, f"{here} and {wait.origin} {quoted(str(wait.value))} contradict each other")
    return 0.0 if at_once and at_once.value else limit


def _verbosity(options: Options) -> int:
    found = options.first_with("verbose", "quiet")
    if (quiet := found.get("quiet")) and quiet.value:
        return -1
    verbose = found.get("verbose")
    return int(str(verbose.value)) if verbose else 0


def _require(options: Options, backend: Chosen) -> Safety | None:
    """The higher one of what the run and what the backend's profile asks for."""
    setting = options.get("require")
    asked = next((known for known in CLASSES if known == setting.value), None)
    if setting.value is not None and asked is None:
        raise fault(setting, f"{setting.origin}: {quoted(str(setting.value))} is none of {', '.join(CLASSES)}")
    required = max((one for one in (asked, backend.require) if one), key=CLASSES.index, default=None)
    if required == "correctness" and not backend.is_named:
        refuse_embedded_default()
    return required


def _max_holders(options: Options) -> int | None:
    """Raises UsageError, ConfigurationError where only one may run at a time."""
    setting = options.get("max-holders")
    if setting.value is None:
        return None
    number = options.number("max-holders")
    for key in ("once", "min-interval", "mark") if number > 1 else ():
        other = options.get(key)
        if other.value not in (None, "success"):
            raise fault(
                setting if setting.file is None else other,
                f"{other.origin} and {setting.origin} {number} contradict each other: of {number} that run at once each"
                " would see that nothing is done yet",
            )
    return number


def _max_run(options: Options) -> float | None:
    setting = options.get("max-run")
    if setting.value is None:
        return None
    limit = _duration(setting)
    if limit == 0:
        raise fault(setting, f"{setting.origin} {quoted(str(setting.value))}: a run of no length does nothing")
    return limit


def _fail_open(options: Options, require: Safety | None) -> bool:
    setting = options.get("fail-open")
    if setting.value and require == "correctness":
        raise fault(
            setting, f"{setting.origin} and --require correctness contradict each other: without a lock two may run"
        )
    return bool(setting.value)


def _grace(options: Options, ttl: float) -> float:
    setting = options.get("kill-after")
    if setting.value is None:
        return default_grace(ttl)
    grace = _duration(setting)
    if grace > longest_grace(ttl):
        raise fault(
            setting,
            f"{setting.origin} {quoted(str(setting.value))} is more than a third of the TTL"
            f" ({format_duration(longest_grace(ttl))}): a longer grace needs a longer --ttl",
        )
    return grace


def _signal(setting: Setting) -> signal.Signals:
    text = str(setting.value)
    name = text.upper().removeprefix("SIG")
    known = {number.name.removeprefix("SIG"): number for number in signal.Signals}
    found = known.get(name) or next((n for n in known.values() if text == str(int(n))), None)
    if found is None or found in (signal.SIGSTOP, signal.SIGCONT, signal.SIGCHLD):
        raise fault(
            setting, f"{setting.origin}: {quoted(text)} is no signal that stops a process; TERM, INT, HUP, … do"
        )
    return found


def _descendants(setting: Setting) -> Descendants | None:
    found = next((known for known in DESCENDANTS if known == setting.value), None)
    if setting.value is not None and found is None:
        raise fault(setting, f"{setting.origin}: {quoted(str(setting.value))} is none of {', '.join(DESCENDANTS)}")
    return found
