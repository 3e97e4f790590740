"""Lock names: what is allowed is exact, in every locale; the rest is one line that names the value and the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock.errors import UsageError
from distlock.names import MAX_BYTES, check_name, parse_name
from distlock.quoting import quoted


def as_argument(raw: bytes) -> str:
    """What sys.argv of this process would hold for these bytes."""
    return os.fsdecode(raw)


allowed_characters = st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp", "Cs"], exclude_characters="{}")
allowed_names = st.text(allowed_characters, min_size=1, max_size=MAX_BYTES // 4).filter(
    lambda name: not name.startswith("-")
)


@pytest.mark.parametrize(
    "name",
    [
        "p",
        "p/1",
        "/p",
        "nightly backup",
        " ",
        " p ",
        "*",
        "%2F",
        "..",
        "a-b",
        "0",
        "'; drop table",
        "отчёт",
        "バックアップ",
        "عربى",
        "e\u0301",
        "\u00e9",
        "\U0001f468\u200d\U0001f469",  # joined by a format character, which scripts need: no control character
        "\u00a0",
        "x" * MAX_BYTES,
        "é" * (MAX_BYTES // 2),
    ],
)
def test_printable_names_are_taken_exactly(name: str) -> None:
    assert parse_name(as_argument(name.encode())) == name


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "empty"),
        (b"x" * (MAX_BYTES + 1), "too long: 201 bytes"),
        ("é".encode() * (MAX_BYTES // 2) + b"x", "too long: 201 bytes"),
        (b"-n", "begins with '-'"),
        (b"--ttl", "begins with '-'"),
        (b"-", "begins with '-'"),
        (b"a{b", "braces"),
        (b"a}b", "braces"),
        (b"a\nb", "control character '\\n'"),
        (b"\t", "control character '\\t'"),
        (b"a\x00b", "control character '\\x00'"),
        (b"\x1b[31m", "control character '\\x1b'"),
        (b"\x7f", "control character '\\x7f'"),
        ("a\u0085b".encode(), "control character '\\u0085'"),
        ("a\u2028b".encode(), "control character '\\u2028'"),
        ("a\u2029b".encode(), "control character '\\u2029'"),
        (b"\xff", "not valid UTF-8"),
        (b"caf\xe9", "not valid UTF-8"),
        (b"\xc0\xaf", "not valid UTF-8"),  # an overlong '/'
        (b"\xed\xa0\x80", "not valid UTF-8"),  # an encoded surrogate
        (b"\xe3\x83", "not valid UTF-8"),  # cut in the middle of a character
    ],
)
def test_refused_with_the_value_and_the_reason(raw: bytes, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_name(as_argument(raw))
    message = str(caught.value)
    assert quoted(as_argument(raw)) in message
    assert reason in message


@given(allowed_names)
def test_every_allowed_name_comes_back_as_typed(name: str) -> None:
    assert parse_name(as_argument(name.encode())) == name
    assert check_name(name) == name


@given(
    allowed_names,
    st.integers(0, MAX_BYTES),
    st.sampled_from([chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]),
)
def test_no_control_character_gets_through_wherever_it_stands(name: str, place: int, control: str) -> None:
    with pytest.raises(UsageError, match="control character"):
        check_name(name[:place] + control + name[place:])


def test_control_characters_are_unicodes() -> None:
    """The code spells the category out, to spare the run path a table of all of Unicode."""
    refused = set()
    for code in range(sys.maxunicode + 1):
        if not 0xD800 <= code < 0xE000:
            try:
                check_name("a" + chr(code))
            except UsageError:
                refused.add(chr(code))
    named = {c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c) in ("Cc", "Zl", "Zp")}
    assert refused == named | {"{", "}"}


@given(st.text(st.characters(codec=None)))
def test_any_text_is_a_name_or_a_one_line_usage_error(text: str) -> None:
    for check in (parse_name, check_name):
        try:
            assert check(text) == text
        except UsageError as error:
            assert str(error).isprintable()
            assert len(str(error)) < 400


@given(st.binary(max_size=MAX_BYTES + 20))
def test_any_bytes_are_a_name_or_a_usage_error(raw: bytes) -> None:
    try:
        assert parse_name(as_argument(raw)).encode() == raw
    except UsageError as error:
        assert str(error).isprintable()


@pytest.mark.parametrize("utf8_mode", ["0", "1"])
@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8", "nowhere.ISO-8859-1"])
@pytest.mark.parametrize("raw", ["отчёт é".encode(), b"caf\xe9", b"a\nb"], ids=["utf-8", "latin-1", "newline"])
def test_bytes_mean_the_same_lock_in_every_locale(raw: bytes, locale: str, utf8_mode: str) -> None:
    program = (
        "import sys\n"
        "from distlock.errors import UsageError\n"
        "from distlock.names import parse_name\n"
        "try:\n"
        "    sys.stdout.buffer.write(parse_name(sys.argv[1]).encode())\n"
        "except UsageError as error:\n"
        "    print(error, file=sys.stderr)\n"
    )
    environment = {"LC_ALL": locale, "PYTHONUTF8": utf8_mode, "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", program, raw], env=environment, capture_output=True, check=True)
    try:
        raw.decode()
        printable = b"\n" not in raw
    except UnicodeError:
        printable = False
    assert done.stdout == (raw if printable else b"")
    assert done.stderr.count(b"\n") == (0 if printable else 1)


def test_a_latin_1_locale_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsencode", lambda argument: argument.encode("latin-1"))
    assert parse_name("отчёт".encode().decode("latin-1")) == "отчёт"
    with pytest.raises(UsageError, match="not valid UTF-8"):
        parse_name("caf\u00e9")  # typed as one latin-1 byte
    with pytest.raises(UsageError, match="not valid UTF-8"):
        parse_name("отчёт")  # no such argument can be typed there; still no traceback
