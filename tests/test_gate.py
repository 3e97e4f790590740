"""Who may start the child, and the order: one of two decides, and no process is left waiting for an order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from distlock.supervise.gate import Gate, Order, Parked

PARKED = Parked(4711, 0)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def in_child(gate: Gate) -> Iterator[Callable[[], bytes]]:
    """What a process that waits for the order says when it has ended."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        gate.in_supervisor()  # nor has the child the renewer's end
        order = gate.await_order()
        os.write(writing, repr(order).encode())
        os._exit(0)
    os.close(writing)
    gate.child_is_forked()

    def said() -> bytes:
        os.waitpid(pid, 0)
        return os.read(reading, 1000)

    yield said
    os.close(reading)


def test_without_a_permission_nobody_has_one(gate: Gate) -> None:
    assert gate.take() is None
    gate.permit(PARKED)
    assert gate.take() == PARKED
    assert gate.take() is None


def test_one_that_was_put_back_can_be_taken_again(gate: Gate) -> None:
    gate.permit(PARKED)
    taken = gate.take()
    assert taken is not None
    gate.permit(taken)
    assert gate.take() == PARKED


def test_only_one_of_many_takes_it(gate: Gate) -> None:
    for _ in range(50):
        found: list[Parked | None] = []
        start = threading.Barrier(8)

        def take(found: list[Parked | None] = found, start: threading.Barrier = start) -> None:
            start.wait()
            found.append(gate.take())

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        gate.permit(PARKED)
        for thread in threads:
            thread.join()
        found.append(gate.take())
        assert [one for one in found if one] == [PARKED]


@pytest.mark.parametrize(
    "order",
    [Order(7, 30.0, "/state/é\udcff.json", None), Order(None, 0.1, "", 0), Order(2**63 - 1, 1e9, "x" * 4000, 999)],
)
def test_an_order_reaches_the_child_whole(gate: Gate, in_child: Callable[[], bytes], order: Order) -> None:
    assert gate.order(order)
    assert in_child()[:1000] == repr(order).encode()[:1000]


def test_the_renewers_end_ends_the_child(gate: Gate, in_child: Callable[[], bytes]) -> None:
    os.close(gate.of_renewer[2])
    assert in_child() == b"None"


def test_an_order_to_nobody_is_told(gate: Gate) -> None:
    gate.child_is_forked()  # and the child is dead
    assert not gate.order(Order(7, 30.0, "", None))
