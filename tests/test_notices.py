"""distlock's own words: one line each, whatever is in them, and none that blocks where nothing may."""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock import notices
from distlock.notices import line, say, say_if_ready


class Stderr:
    """A pipe in its place. The writing end does not block, so that a test fails where the program would hang."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)

    def fill(self) -> None:
        try:
            while os.write(self.writing, b"." * select.PIPE_BUF):
                pass
        except BlockingIOError:
            pass

    def read(self) -> bytes:
        try:
            return os.read(self.reading, 1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        for end in (self.reading, self.writing):
            try:
                os.close(end)
            except OSError:
                pass  # a test has closed it


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stderr]:
    pipe = Stderr()
    monkeypatch.setattr(notices, "_STDERR", pipe.writing)
    yield pipe
    pipe.close()


# -- one line ------------------------------------------------------------------------------------------------------


@given(st.text(st.characters(codec=None)))
def test_any_text_is_one_line_and_says_whose_it_is(text: str) -> None:
    data = line(text)
    assert data.startswith(b"distlock: ")
    assert data.endswith(b"\n")
    assert len(data.decode("utf-8").splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a sentence", "distlock: a sentence\n"),
        ("first\nsecond\r\nthird", "distlock: first second third\n"),
        ("Ночной", "distlock: Ночной\n"),
        ("\udcff", "distlock: \\xff\n"),
        ("a \x1b[31mred path\tit's", "distlock: a \\x1b[31mred path\\tit's\n"),
    ],
)
def test_lines(text: str, shown: str) -> None:
    assert line(text) == shown.encode()


# -- saying it -----------------------------------------------------------------------------------------------------


def test_it_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    say("one")
    assert say_if_ready("two")
    out, err = capfd.readouterr()
    assert out == ""
    assert err == "distlock: one\ndistlock: two\n"


def test_a_line_that_is_taken_in_pieces_comes_whole(stderr: Stderr, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    say("x" * 1000)
    assert stderr.read() == line("x" * 1000)


@pytest.mark.parametrize("closed", ["reading", "writing"])
def test_nobody_who_listens_is_no_error(stderr: Stderr, closed: str) -> None:
    os.close(getattr(stderr, closed))
    say("to nobody")
    assert say_if_ready("to nobody"), "it would be kept for later"


# -- where nothing may block ---------------------------------------------------------------------------------------


def test_a_full_pipe_is_left_alone_and_its_reader_gets_the_line_later(stderr: Stderr) -> None:
    stderr.fill()
    assert not say_if_ready("not now")
    assert set(stderr.read()) == {ord(".")}
    assert say_if_ready("now")
    assert stderr.read() == b"distlock: now\n"


def test_a_pipe_with_room_for_one_more_takes_the_longest_line_whole(stderr: Stderr) -> None:
    pages = fcntl.fcntl(stderr.writing, fcntl.F_GETPIPE_SZ) // select.PIPE_BUF
    for _ in range(pages - 1):
        os.write(stderr.writing, b"." * select.PIPE_BUF)
    assert say_if_ready("é" * 5000)
    said = stderr.read()[(pages - 1) * select.PIPE_BUF :]
    assert len(said) <= select.PIPE_BUF
    assert said.startswith("distlock: ééé".encode())
    assert said.endswith("é\n".encode()), "the next line would stand in the same one, or half a character at its end"


def test_a_line_in_a_file_or_on_a_device_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    monkeypatch.setattr(notices, "_STDERR", null)
    assert say_if_ready("to a device")
    os.close(null)
