"""Independent servers asked all at once: a thread for each, so that one which is silent holds up nobody.

What is asked of a node happens in the order in which it was asked, also when nobody waits for the answer any more: a
release that comes after a try undoes it, however late the try is answered.
"""

from __future__ import annotations

import math
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .base import ConfigurationError, DistlockError, LeaseLost, Refused, Unavailable
from .redis import RedisBackend
from .redis_link import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .redis_url import Server

T = TypeVar("T")

DRIFT = 0.01
"""By this part of the TTL, and by DRIFT_MORE, a lease at a node is longer than what is counted on: for clocks of
different speed, and for milliseconds."""
DRIFT_MORE = 0.002
_PATIENCE = 0.1
"""Seconds for the others once a majority has decided."""


class NodeBackend(RedisBackend):
    """One of the servers, with leases that are longer by the allowance for drift."""

    @staticmethod
    def milliseconds(seconds: float) -> str:
        return str(math.ceil((seconds * (1 + DRIFT) + DRIFT_MORE) * 1000))


class Node:
    def __init__(self, server: Server, clock: Callable[[], float]) -> None:
        self.link = Link(server, clock)
        self.backend = NodeBackend(self.link, clock)
        self._thread: ThreadPoolExecutor | None = None
        self._under_way: list[Future[Any]] = []

    @property
    def idle(self) -> bool:
        """Nothing is under way: only then its link may be looked at by another thread."""
        return self._backlog() == 0

    @property
    def stuck(self) -> bool:
        """Something waits already for what is under way. What is added would come too late, and pile up."""
        return self._backlog() > 1

    def _backlog(self) -> int:
        self._under_way = [future for future in self._under_way if not future.done()]
        return len(self._under_way)

    def do(self, work: Callable[[], T]) -> Future[T]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, f"redlock {self.link.address}")
        future = self._thread.submit(work)
        self._under_way.append(future)
        return future

    def close(self) -> None:
        """Ends the connection when what is under way has ended, by its time-out at the latest."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.submit(self.link.close)
        thread.shutdown(wait=False)
        self._under_way.clear()


class Replies(Generic[T]):
    """By the number of the node. Who did not answer in time is among the errors."""

    def __init__(self) -> None:
        self.values: dict[int, T] = {}
        self.errors: dict[int, DistlockError] = {}

    def answered(self, number: int, value: T) -> None:
        self.values[number] = value

    def failed(self, number: int, error: DistlockError) -> None:
        self.errors[number] = error


class Nodes:
    def __init__(self, servers: Sequence[Server], clock: Callable[[], float]) -> None:
        self.all = [Node(server, clock) for server in servers]
        self.quorum = len(servers) // 2 + 1
        self._clock = clock

    @property
    def address(self) -> str:
        return ",".join(node.link.address for node in self.all)

    def ask(
        self,
        work: Callable[[int], T],
        timeout: float,
        settled: Callable[[Replies[T]], bool],
        *,
        queue: bool = False,
    ) -> Replies[T]:
        """Of every node; waits until all have answered, ``timeout`` seconds have gone, or little longer than until it
        is ``settled``. A node that is stuck is left out, unless it is to be a ``queue``. Errors of the contract are
        collected; any other is raised."""
        replies: Replies[T] = Replies()
        end = self._clock() + timeout
        asked = {
            node.do(partial(_outcome, work, number)): number
            for number, node in enumerate(self.all)
            if queue or not node.stuck
        }
        waiting = set(asked)
        decided = False
        while waiting and (left := end - self._clock()) > 0:
            done, waiting = wait(waiting, left, FIRST_COMPLETED)
            for future in done:
                future.result()(replies)
            if not decided and settled(replies):
                decided = True
                end = min(end, self._clock() + _PATIENCE)
        for number, node in enumerate(self.all):
            if number not in replies.values and number not in replies.errors:
                replies.errors[number] = Unavailable(f"{node.link.address} does not answer")
        return replies

    def failure(self, errors: dict[int, DistlockError]) -> DistlockError:
        """Why there is no majority: what needs a repair comes first."""
        told = [errors[number] for number in sorted(errors) if not isinstance(errors[number], LeaseLost)]
        first = next((one for kind in (ConfigurationError, Refused) for one in told if isinstance(one, kind)), told[0])
        good = len(self.all) - len(errors)
        count = f"{good} of {len(self.all)}"
        text = f"only {count} servers of the redlock can be counted on, {self.quorum} are needed: {first}"
        if isinstance(first, (ConfigurationError, Refused)):
            return type(first)(text)
        return Unavailable(text, permanent=all(isinstance(one, Unavailable) and one.permanent for one in told))

    def close(self) -> None:
        for node in self.all:
            node.close()


def _outcome(work: Callable[[int], T], number: int) -> Callable[[Replies[T]], None]:
    """Does the work, and tells how to write down what came of it: only one thread writes."""
    try:
        value = work(number)
    except DistlockError as error:
        return partial(Replies.failed, number=number, error=error)
    return partial(Replies.answered, number=number, value=value)
