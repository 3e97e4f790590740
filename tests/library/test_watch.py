"""The host's judgement on its lease, in a world without real time."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from distlock.errors import LeaseExpiring, UsageError
from distlock.library.lease import Lease
from distlock.library.watch import Watch
from distlock.supervise.wire import Kind, Message
from fakes import FakeClock

TTL = 30.0
HARD = 1000 + 28.2


class ScriptedRenewer:
    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.deadline = HARD
        self.dead = False
        self.said: list[Message] = []
        self.while_listening: Callable[[], object] = lambda: None

    def hard(self) -> float:
        return self.deadline

    def is_gone(self) -> bool:
        return self.dead

    def messages(self) -> list[Message]:
        self.while_listening()
        said, self.said = self.said, []
        return said

    def await_news(self, seconds: float | None) -> None:
        assert seconds is not None
        self._clock.sleep(seconds, lambda: bool(self.said) or self.dead)

    def lose(self, reason: str = "it went to somebody else") -> None:
        self.said.append(Message(Kind.LOST, text=reason))
        self.deadline = float("-inf")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def renewer(clock: FakeClock) -> ScriptedRenewer:
    return ScriptedRenewer(clock)


@pytest.fixture
def watch(renewer: ScriptedRenewer, clock: FakeClock) -> Watch:
    return Watch(renewer, clock)


@pytest.fixture
def lease(watch: Watch) -> Lease:
    return Lease("nightly", "me", 7, TTL, watch)


def expiring(lease: Lease, need: float | None = None) -> str:
    with pytest.raises(LeaseExpiring) as raised:
        lease.checkpoint(need)
    return str(raised.value)


def test_held(lease: Lease, clock: FakeClock) -> None:
    assert lease.remaining() == pytest.approx(28.2)
    clock.now += 20
    assert lease.remaining() == pytest.approx(8.2)
    assert not lease.lost.is_set()
    assert lease.lost.reason is None
    lease.checkpoint()
    lease.checkpoint(need=8)
    assert "remaining=8.200" in repr(lease)


def test_a_renewal_gives_more(lease: Lease, renewer: ScriptedRenewer, clock: FakeClock) -> None:
    clock.now += 20
    renewer.deadline += 10
    assert lease.remaining() == pytest.approx(18.2)


def test_checkpoint_until_soft_by_default(lease: Lease, clock: FakeClock) -> None:
    clock.now = HARD - 5.001
    lease.checkpoint()
    clock.now = HARD - 4.999
    assert expiring(lease) == "'nightly': 4.999s of the lease are left, 5s are needed"
    lease.checkpoint(need=4.9)
    lease.checkpoint(need=0)
    assert not lease.lost.is_set()


def test_a_need_that_no_lease_meets(lease: Lease) -> None:
    assert expiring(lease, 29).endswith("29s are needed; a lease of 30s never has more than 28.2s")


@pytest.mark.parametrize("need", [-1, float("nan")])
def test_a_need_that_is_none(lease: Lease, need: float) -> None:
    with pytest.raises(UsageError, match="need="):
        lease.checkpoint(need)


def test_deadline_passed_is_lost_whatever_the_renewer_does(
    lease: Lease, renewer: ScriptedRenewer, clock: FakeClock
) -> None:
    """It is frozen, or the host was."""
    clock.now = HARD
    assert lease.remaining() == 0
    assert expiring(lease, 0) == "'nightly': lease lost: it could not be renewed in time"
    assert lease.lost.is_set()
    renewer.deadline += 100
    assert lease.lost.is_set(), "once lost is lost for good"
    assert lease.remaining() == 0


def test_trouble_is_told_with_the_loss(lease: Lease, renewer: ScriptedRenewer, clock: FakeClock) -> None:
    renewer.said.append(Message(Kind.TROUBLE, text="renewal failed (attempt 3): no route"))
    assert not lease.lost.is_set()
    clock.now = HARD
    assert lease.lost.reason == "it could not be renewed in time (renewal failed (attempt 3): no route)"


def test_taken_away(lease: Lease, renewer: ScriptedRenewer) -> None:
    renewer.lose()
    assert lease.remaining() == 0
    assert expiring(lease, 0) == "'nightly': lease lost: it went to somebody else"
    assert lease.lost.reason == "it went to somebody else"


def test_withdrawn_between_two_looks(lease: Lease, renewer: ScriptedRenewer) -> None:
    """The reason comes after the messages were read and before the deadline is: it is read again."""
    looks: list[int] = []

    def lose_behind_the_first_look() -> None:
        looks.append(1)
        if len(looks) == 2:
            renewer.said.append(Message(Kind.LOST, text="it went to somebody else"))

    renewer.while_listening = lose_behind_the_first_look
    renewer.deadline = float("-inf")
    assert lease.lost.reason == "it went to somebody else"


def test_dead_renewer_is_lost_at_once(lease: Lease, renewer: ScriptedRenewer) -> None:
    renewer.dead = True
    assert lease.lost.is_set()
    assert lease.remaining() == 0
    assert expiring(lease) == "'nightly': lease lost: the renewer is dead"


def test_last_words_of_a_dead_renewer(lease: Lease, renewer: ScriptedRenewer) -> None:
    renewer.said.append(Message(Kind.FAILED, 0, text="the renewer failed: MemoryError: "))
    renewer.dead = True
    assert lease.lost.reason == "the renewer is dead (the renewer failed: MemoryError: )"


def test_wait_ends_with_the_loss(lease: Lease, renewer: ScriptedRenewer, clock: FakeClock) -> None:
    clock.at(1003, renewer.lose)
    assert lease.lost.wait()
    assert clock.now == 1003


def test_wait_ends_at_the_deadline(lease: Lease, clock: FakeClock) -> None:
    assert lease.lost.wait()
    assert clock.now == pytest.approx(HARD, abs=0.11)


def test_wait_with_a_limit(lease: Lease, clock: FakeClock) -> None:
    assert not lease.lost.wait(2.5)
    assert clock.now == pytest.approx(1002.5)
    assert not lease.lost.wait(0)


def test_wait_ends_with_the_release(lease: Lease, watch: Watch, clock: FakeClock) -> None:
    """A watchdog thread must neither wait for ever nor take the end for a loss."""
    clock.at(1003, watch.end)
    assert not lease.lost.wait()
    assert clock.now == pytest.approx(1003, abs=0.11)


def test_given_back(lease: Lease, watch: Watch, clock: FakeClock) -> None:
    assert watch.end() is None
    clock.now += 100
    assert lease.remaining() == 0
    assert expiring(lease, 0) == "'nightly': the lock was given back"
    assert not lease.lost.is_set()
    assert not lease.lost.wait()


@pytest.mark.parametrize("at", ["messages", "hard"])
def test_given_back_while_a_thread_looks(
    lease: Lease, watch: Watch, renewer: ScriptedRenewer, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is no loss: the thread has asked already whether the lease has ended, and was slow to go on."""

    def end() -> float:
        monkeypatch.undo()
        assert watch.end() is None
        renewer.dead, renewer.deadline = True, float("-inf")
        return float("-inf")

    if at == "hard":
        monkeypatch.setattr(renewer, "hard", end)
        assert not lease.lost.is_set()
    else:
        monkeypatch.setattr(watch, "_listen", end)
        assert not lease.lost.is_set()
    assert not lease.lost.is_set()


def test_lost_before_it_was_given_back(lease: Lease, watch: Watch, clock: FakeClock) -> None:
    clock.now = HARD
    assert watch.end() == "it could not be renewed in time"
    assert not watch.seen
    assert lease.lost.is_set()
    assert watch.seen


def test_a_renewer_that_died_has_harmed_nobody_before_the_deadline(
    lease: Lease, watch: Watch, renewer: ScriptedRenewer
) -> None:
    renewer.dead = True
    assert lease.lost.is_set()
    assert watch.end() is None


def test_forked_child_holds_nothing(renewer: ScriptedRenewer, clock: FakeClock) -> None:
    pid = [1]
    watch = Watch(renewer, clock, getpid=lambda: pid[0])
    lease = Lease("nightly", "me", 7, TTL, watch)
    assert not lease.lost.is_set()
    pid[0] = 2
    renewer.said.append(Message(Kind.LOST, text="for the parent"))
    assert lease.lost.is_set()
    assert lease.lost.wait()
    assert lease.remaining() == 0
    assert expiring(lease, 0) == "'nightly': lease lost: this process was forked off the one that holds it"
    assert renewer.said, "what is meant for the parent is left to it"


def test_below_a_signal_handler(lease: Lease, renewer: ScriptedRenewer, clock: FakeClock) -> None:
    """A handler interrupts a look in the middle and looks itself: no deadlock, and the clock decides."""
    seen: list[bool] = []

    def handler() -> None:
        renewer.while_listening = lambda: None
        seen.append(lease.lost.is_set())
        clock.now = HARD
        seen.append(lease.lost.is_set())

    renewer.while_listening = handler
    assert lease.lost.is_set()
    assert seen == [False, True]


def test_many_threads(lease: Lease, renewer: ScriptedRenewer) -> None:
    """A loss is told to each; the reason is the same for all."""
    start = threading.Barrier(9)
    reasons: list[str | None] = []

    def ask() -> None:
        start.wait()
        while (reason := lease.lost.reason) is None:
            pass
        lease.lost.wait()
        reasons.append(reason)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    start.wait()
    renewer.said.append(Message(Kind.LOST, text="it went to somebody else"))
    for thread in threads:
        thread.join(10)
    assert set(reasons) == {"it went to somebody else"}
    assert len(reasons) == 8
