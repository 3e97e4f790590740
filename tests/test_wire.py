"""What supervisor and renewer say to each other: any cut of the stream, any text, a peer that is dead or asleep."""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distlock.backends import base
from distlock.backends.base import DistlockError
from distlock.errors import InternalError, NestedRun
from distlock.supervise.wire import FAILURES, Channel, Decoder, Kind, Message, SharedDeadline, channels, encode, failure

kinds = st.sampled_from(Kind)
numbers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=300)
messages = st.builds(Message, kinds, numbers, numbers, texts)


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    one, other = channels()
    yield one, other
    one.close()
    other.close()


# -- messages as bytes ---------------------------------------------------------------------------------------------


@given(st.lists(messages, max_size=8), st.lists(st.integers(0, 5000), max_size=12))
def test_any_cut_of_the_stream_gives_the_same_messages(sent: list[Message], cuts: list[int]) -> None:
    stream = b"".join(map(encode, sent))
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = Decoder()
    received: list[Message] = []
    for start, end in pairwise(places):
        received += decoder.feed(stream[start:end])
    assert received == sent
    assert all(isinstance(message.kind, Kind) for message in received)


@given(st.lists(messages, min_size=1, max_size=4))
def test_each_message_is_there_with_its_last_byte(sent: list[Message]) -> None:
    decoder = Decoder()
    for message in sent:
        data = encode(message)
        received = [decoder.feed(data[at : at + 1]) for at in range(len(data))]
        assert received == [[]] * (len(data) - 1) + [[message]]


@example("\udcff", 1)
@example("\U0001f512", 4000)
@given(st.text(st.characters(codec=None)), st.integers(1, 4000))
def test_any_text_is_written_in_one_piece_and_can_be_read(text: str, times: int) -> None:
    data = encode(Message(Kind.LOST, text=text * times))
    assert len(data) <= select.PIPE_BUF
    (received,) = Decoder().feed(data)
    expected = (text * times).encode("utf-8", "backslashreplace").decode()
    # Cut at the end if at all, in the middle of a character at worst.
    assert expected.startswith(received.text.rstrip("\N{REPLACEMENT CHARACTER}")) or expected == received.text
    assert len(received.text) >= min(len(expected), 3500 // 4)


def test_the_text_of_a_long_error_is_cut_and_what_follows_is_not_hurt() -> None:
    decoder = Decoder()
    stream = encode(Message(Kind.FAILED, 3, text="é" * 4000)) + encode(Message(Kind.RELEASED, 1))
    first, second = decoder.feed(stream)
    assert first.text == "é" * 1750
    assert second == Message(Kind.RELEASED, 1)


@pytest.mark.parametrize("token", [-1, 0, 2**63 - 1])
def test_every_token_fits(token: int) -> None:
    assert Decoder().feed(encode(Message(Kind.GRANTED, token)))[0].first == token


def test_every_error_of_an_engine_can_be_told_and_the_unknown_ones_are_ours() -> None:
    errors = {kind for kind in vars(base).values() if isinstance(kind, type) and issubclass(kind, DistlockError)}
    assert {NestedRun, *errors} - {DistlockError} <= set(FAILURES)
    assert len(set(FAILURES)) == len(FAILURES)
    assert FAILURES[0] is InternalError


def test_an_error_is_told_as_the_nearest_kind_that_both_ends_know() -> None:
    """An engine's own kind of Unavailable is no internal error."""

    class Own(base.Unavailable):
        pass

    class Unknown(DistlockError):
        pass

    for error, kind in ((Own("x"), base.Unavailable), (base.Revoked("x"), base.Revoked), (Unknown("x"), InternalError)):
        assert FAILURES[failure(error).first] is kind


# -- channels ------------------------------------------------------------------------------------------------------


def test_both_ends_hear_each_other_in_order(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    for number in range(3):
        one.send(Message(Kind.NOTE, number, text="from one"))
    other.send(Message(Kind.RELEASED, 4711, 4711))
    assert other.receive() == [Message(Kind.NOTE, number, text="from one") for number in range(3)]
    assert one.receive() == [Message(Kind.RELEASED, 4711, 4711)]
    assert one.receive() == other.receive() == []
    assert not one.peer_is_gone
    assert not other.peer_is_gone


def test_what_was_put_back_comes_first() -> None:
    one, other = channels()
    for number in (1, 2, 3):
        other.send(Message(Kind.NOTE, number))
    one.put_back(one.receive()[1:])
    other.send(Message(Kind.NOTE, 4))
    assert [message.first for message in one.receive()] == [2, 3, 4]
    other.close()
    one.put_back([Message(Kind.NOTE, 5)])
    assert one.receive() == [Message(Kind.NOTE, 5)]
    assert one.peer_is_gone
    one.close()


def test_the_last_words_of_a_dead_peer_are_heard() -> None:
    one, other = channels()
    one.send(Message(Kind.LOST, text="why"))
    one.close()
    assert other.receive() == [Message(Kind.LOST, text="why")]
    assert other.peer_is_gone
    assert other.receive() == []
    other.close()


def test_a_message_to_the_dead_is_no_error() -> None:
    one, other = channels()
    other.close()
    one.send(Message(Kind.TROUBLE, text="to nobody"))
    one.close()


def test_a_peer_that_sleeps_stops_nobody_and_finds_whole_messages(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    trouble = Message(Kind.TROUBLE, text="x" * 3000)
    for _ in range(200):
        one.send(trouble)
    received = other.receive()
    assert received == [trouble] * len(received)
    assert 10 <= len(received) < 200
    one.send(Message(Kind.RELEASED, 1))
    assert other.receive() == [Message(Kind.RELEASED, 1)]


def test_no_child_inherits_its_descriptors(ends: tuple[Channel, Channel]) -> None:
    for descriptor in (*ends[0].descriptors, *ends[1].descriptors):
        assert fcntl.fcntl(descriptor, fcntl.F_GETFD) & fcntl.FD_CLOEXEC


def test_none_of_them_takes_the_place_of_a_standard_one_that_the_caller_closed() -> None:
    """The child would be handed it as its stdin, and write its output to it."""
    program = """
import os
from distlock.supervise.wire import channels
os.closerange(0, 3)
os._exit(min(descriptor for end in channels() for descriptor in end.descriptors))
"""
    command = [sys.executable, "-c", f"import sys\nsys.path[:] = {sys.path}\n{program}"]
    assert subprocess.run(command, check=False).returncode > 2


def test_nothing_is_left_open() -> None:
    before = os.listdir("/proc/self/fd")
    one, other = channels()
    assert len(os.listdir("/proc/self/fd")) == len(before) + 4
    one.close()
    other.close()
    assert os.listdir("/proc/self/fd") == before


def test_a_socket_whose_other_end_died_with_messages_unread() -> None:
    """The kernel says "reset" then, and not "end of file"."""
    ours, theirs = socket.socketpair()
    with ours:
        channel = Channel(ours.fileno(), ours.fileno())
        channel.send(Message(Kind.RELEASE))
        theirs.send(encode(Message(Kind.NOTE, text="last words")))
        theirs.close()
        assert [message.text for message in channel.receive()] == ["last words"]
        assert channel.peer_is_gone
        channel.send(Message(Kind.RELEASE))


# -- the deadline --------------------------------------------------------------------------------------------------


def test_before_a_grant_any_instant_is_past_the_deadline() -> None:
    assert SharedDeadline().get() == float("-inf")


@given(st.floats(allow_nan=False))
def test_a_deadline_is_read_exactly_as_it_was_set(instant: float) -> None:
    deadline = SharedDeadline()
    deadline.set(instant)
    assert deadline.get() == instant


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # those of xdist; the child only writes
def test_what_the_renewer_sets_after_the_fork_is_what_the_supervisor_reads() -> None:
    deadline = SharedDeadline()
    pid = os.fork()
    if pid == 0:
        try:
            deadline.set(12345.678)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert deadline.get() == 12345.678


def test_deadline_in_a_file_is_seen_by_a_process_that_was_not_forked() -> None:
    page = os.memfd_create("page")
    os.ftruncate(page, mmap.PAGESIZE)
    deadline = SharedDeadline(page)
    deadline.set(12345.678)
    program = """
import sys
from distlock.supervise.wire import SharedDeadline
page = SharedDeadline(int(sys.argv[1]))
assert page.get() == 12345.678
page.set(87654.321)
"""
    subprocess.run([sys.executable, "-c", program, str(page)], pass_fds=[page], check=True)
    os.close(page)
    assert deadline.get() == 87654.321
