"""Durations: every form that is promised, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.durations import MAX_SECONDS, format_duration, parse_duration
from distlock.errors import UsageError
from distlock.quoting import quoted


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0),
        ("30s", 30.0),
        ("1.5s", 1.5),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("9ms", 0.009),
        ("0.5ms", 0.0005),
        ("5m", 300.0),
        ("0.5m", 30.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
        ("3650d", MAX_SECONDS),
        ("0", 0.0),
        ("0s", 0.0),
        ("0.0ms", 0.0),
        ("007", 7.0),
    ],
)
def test_accepted(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "s",
        "ms",
        ".",
        ".5",
        "1.",
        "1.s",
        "1..5",
        "1.5.5",
        "-1",
        "-0",
        "+1",
        "1e3",
        "0x10",
        "1_000",
        "1,5",
        "inf",
        "infinity",
        "nan",
        "1 s",
        " 1",
        "1 ",
        "1\n",
        "1S",
        "5M",
        "1us",
        "1w",
        "1y",
        "1sec",
        "30ss",
        "1hm",
        "1h30m",
        "s30",
        "٣",  # a digit to str.isdigit() and to float(), not an ASCII one
        "²",
        "１",
        "\udcff",
        "1\x00",
    ],
)
def test_refused_and_quoted(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert quoted(text) in str(caught.value)
    assert "not a duration" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["3651d", "315360001", "87601h", "9" * 400, "9" * 400 + "ms", "1" + "0" * 5000 + ".5d"]
)
def test_too_long_is_named_so_even_where_a_float_overflows(text: str) -> None:
    with pytest.raises(UsageError, match="too long; the longest is 3650d") as caught:
        parse_duration(text)
    assert quoted(text) in str(caught.value)


@given(st.text(alphabet="0123456789.smhd-+e_ n", max_size=12) | st.text())
def test_any_text_is_a_bounded_number_or_a_usage_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except UsageError as error:
        assert quoted(text) in str(error)
        assert str(error).isascii() or not text.isascii()
    else:
        assert 0.0 <= seconds <= MAX_SECONDS


@given(st.integers(0, 59_999))
def test_below_a_minute_what_is_shown_can_be_typed_back_exactly(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@given(st.integers(1, 3650), st.sampled_from("smhd"))
def test_whole_units_mean_the_same_typed_and_shown(count: int, unit: str) -> None:
    seconds = parse_duration(f"{count}{unit}")
    assert sum(parse_duration(part) for part in _parts(format_duration(seconds))) == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (0.0004, "0s"),
        (-0.0004, "0s"),
        (0.001, "1ms"),
        (0.5, "500ms"),
        (0.9996, "1s"),
        (1.5, "1.5s"),
        (2.96, "2.96s"),
        (12.345, "12.345s"),
        (30, "30s"),
        (59.999, "59.999s"),
        (59.9996, "1m"),
        (60, "1m"),
        (192, "3m12s"),
        (192.9, "3m12s"),
        (3600, "1h"),
        (3601, "1h"),
        (7500, "2h5m"),
        (86400, "1d"),
        (97200, "1d3h"),
        (97200 + 59, "1d3h"),
        (86400 + 59, "1d"),
        (-192, "-3m12s"),
        (-0.5, "-500ms"),
        (MAX_SECONDS, "3650d"),
    ],
)
def test_shown(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


@given(st.floats(-100 * MAX_SECONDS, 100 * MAX_SECONDS))
def test_anything_shown_is_one_short_word(seconds: float) -> None:
    shown = format_duration(seconds)
    assert shown.isascii()
    assert shown.isalnum() or set(shown) - set("-.") <= set("0123456789smhd")
    assert len(shown) <= 11


@given(st.floats(60, MAX_SECONDS))
def test_long_ones_are_rounded_down_by_less_than_their_second_unit(seconds: float) -> None:
    parts = _parts(format_duration(seconds))
    shown = sum(parse_duration(part) for part in parts)
    step = {"d": 3600.0, "h": 60.0, "m": 1.0}[parts[0][-1]]
    assert shown - 0.0006 <= seconds < shown + step


def _parts(shown: str) -> list[str]:
    """``3m12s`` as ``3m``, ``12s``."""
    parts = [""]
    for character in shown:
        if character.isdigit() and parts[-1] and parts[-1][-1].isalpha():
            parts.append("")
        parts[-1] += character
    return parts
