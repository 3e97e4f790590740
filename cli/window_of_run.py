"""The options of a run that need not be done again: --once, --min-interval and what goes with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distlock.durations import format_duration, parse_duration
from distlock.errors import UsageError
from distlock.names import parse_name
from distlock.quoting import quoted
from distlock.window import LONGEST_INTERVAL, LONGEST_KEY, Window

from .settings import fault

if TYPE_CHECKING:
    from distlock.config import Setting

    from .settings import Options


def window_of(options: Options) -> Window:
    """Raises UsageError, ConfigurationError."""
    interval, once, mark = options.get("min-interval"), options.get("once"), options.get("mark")
    if mark.value not in ("success", "start"):
        raise fault(mark, f"{mark.origin}: {quoted(str(mark.value))} is none of success, start")
    if mark.value == "start" and mark.file is None and interval.value is None and once.value is None:
        raise UsageError(f"{mark.origin} start says when a window closes: give --once KEY or --min-interval D as well")
    return Window(
        None if interval.value is None else _at_most_a_year(interval),
        None if once.value is None else _key(once),
        _at_most_a_year(options.get("once-keep")),
        mark.value == "start",
    )


def _at_most_a_year(setting: Setting) -> float:
    try:
        found = parse_duration(str(setting.value))
    except UsageError as error:
        raise fault(setting, f"{setting.origin}: {error}") from None
    if found > LONGEST_INTERVAL:
        longest = format_duration(LONGEST_INTERVAL)
        raise fault(setting, f"{setting.origin} {quoted(str(setting.value))} is too long; the longest is {longest}")
    return found


def _key(setting: Setting) -> str:
    """What a lock's name may be."""
    text = str(setting.value)
    try:
        key = parse_name(text)
    except UsageError as error:
        raise fault(setting, f"{setting.origin}: {str(error).replace('lock name', 'KEY', 1)}") from None
    if len(key.encode()) > LONGEST_KEY:
        raise fault(setting, f"{setting.origin}: KEY {quoted(text)} is too long; {LONGEST_KEY} bytes are allowed")
    return key
