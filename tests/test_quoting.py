"""Values in error lines: one printable line, whatever was typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.quoting import SHOWN, printable, quoted

any_text = st.text(st.characters(codec=None))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", "''"),
        ("nightly backup", "'nightly backup'"),
        ("Ночной отчёт", "'Ночной отчёт'"),
        ("it's", "'it\\'s'"),
        ("a\\nb", "'a\\\\nb'"),
        ("a\nb\rc\td", "'a\\nb\\rc\\td'"),
        ("\x1b[31mred", "'\\x1b[31mred'"),
        ("\x7f\x00", "'\\x7f\\x00'"),
        ("\x85", "'\\u0085'"),
        ("\u2028\u202e", "'\\u2028\\u202e'"),
        ("\udcff\udc80", "'\\xff\\x80'"),
        ("\ud800", "'\\ud800'"),
        ("\U000e0001", "'\\U000e0001'"),
    ],
)
def test_shown(value: str, shown: str) -> None:
    assert quoted(value) == shown


def test_a_sentence_keeps_its_quotes_and_loses_what_a_terminal_obeys() -> None:
    assert printable("it's 'Ночь'\\") == "it's 'Ночь'\\"
    assert printable("a\x1b[31m\tb\udcff'") == "a\\x1b[31m\\tb\\xff'"


def test_a_long_value_is_cut_and_its_length_told() -> None:
    assert quoted("x" * SHOWN) == f"'{'x' * SHOWN}'"
    assert quoted("x" * (SHOWN + 1)) == f"'{'x' * SHOWN}'... (201 characters)"
    # No escape is cut in two.
    assert quoted("x" + "\x00" * SHOWN) == "'x" + "\\x00" * 49 + "'... (201 characters)"


@given(any_text)
def test_one_printable_line_that_any_stream_takes(value: str) -> None:
    shown = quoted(value)
    assert shown.isprintable()
    assert len(shown) < SHOWN + 40
    shown.encode("utf-8")
    shown.encode("ascii", errors="backslashreplace")


@given(st.text(st.characters(codec=None), max_size=SHOWN // 10))
def test_nothing_is_lost_of_a_short_value(value: str) -> None:
    assert _read_back(quoted(value)) == value


@given(st.binary(max_size=SHOWN // 4))
def test_bytes_that_are_no_text_are_shown_as_bytes(raw: bytes) -> None:
    value = raw.decode("ascii", errors="surrogateescape")
    for byte in raw:
        if byte >= 0x80:
            assert f"\\x{byte:02x}" in quoted(value)


def _read_back(shown: str) -> str:
    """The value again, by a reading of the escapes that shares nothing with the code that writes them."""
    assert shown[0] == shown[-1] == "'"
    rest = shown[1:-1]
    value = ""
    while rest:
        if rest[0] != "\\":
            value, rest = value + rest[0], rest[1:]
            continue
        kind, digits = rest[1], {"x": 2, "u": 4, "U": 8}.get(rest[1], 0)
        if digits:
            code = int(rest[2 : 2 + digits], 16)
            value += chr(code + 0xDC00 if kind == "x" and code >= 0x80 else code)
        else:
            value += {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'"}[kind]
        rest = rest[2 + digits :]
    return value
