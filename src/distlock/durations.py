"""Durations as people write and read them."""

from __future__ import annotations

from .errors import UsageError
from .quoting import quoted

MAX_SECONDS = 3650 * 86400.0
"""Ten years. A longer one is a slip of the keyboard, and far beyond it the clocks' arithmetic ends."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> float:
    """Seconds in ``30``, ``30s``, ``1.5s``, ``500ms``, ``5m``, ``2h``, ``1d``. Raises UsageError, which quotes the
    text; other forms that float() knows (signs, exponents, nan, underscores, blanks) are not durations."""
    number = text.rstrip("smhd")
    unit = text[len(number) :] or "s"
    whole, point, fraction = number.partition(".")
    if unit not in ("ms", *_SECONDS) or not _is_digits(whole) or (point and not _is_digits(fraction)):
        raise UsageError(
            f"{quoted(text)} is not a duration; write a number and one unit, such as 500ms, 30s, 5m, 2h, 1d"
        )
    # Divided, not multiplied by 0.001, which is no binary fraction: 9ms is to be the float nearest to 0.009.
    seconds = float(number) / 1000 if unit == "ms" else float(number) * _SECONDS[unit]
    if seconds > MAX_SECONDS:
        raise UsageError(f"duration {quoted(text)} is too long; the longest is {format_duration(MAX_SECONDS)}")
    return seconds


def duration_of(option: str, text: str) -> float:
    """Raises UsageError, which names the option too."""
    try:
        return parse_duration(text)
    except UsageError as error:
        raise UsageError(f"{option}: {error}") from None


def format_duration(seconds: float) -> str:
    """A duration, short: ``500ms``, ``1.5s``, ``3m12s``, ``2h5m``, ``1d3h``. Exact to the millisecond below a
    minute, so that a figure never seems to equal the limit it misses; above it the two greatest units, rounded down.
    A negative one has a sign. Ten years are shown, and centuries; infinity is no duration."""
    sign = "-" if seconds < 0 else ""
    milliseconds = round(abs(seconds) * 1000)
    if milliseconds == 0:
        return "0s"
    if milliseconds < 1000:
        return f"{sign}{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{sign}{milliseconds / 1000:g}s"
    left = milliseconds // 1000
    shown: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, _SECONDS[unit])
        if count or shown:
            shown.append(f"{count}{unit}" if count else "")
    return sign + "".join(shown[:2])


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()
