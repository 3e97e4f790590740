"""Forgetting locks and fence registers that are no longer used.

No floor is kept for the tokens: each is the number of a change at the servers, or one that such a number has passed
when it is given, and these grow whatever is removed and however the clocks are set.

The folder of a lock goes in one step, which fails if somebody has entered the queue or the record was written
meanwhile. Who comes later makes it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kazoo.protocol.serialization import Delete, GetChildren2, GetData, Sync, Transaction

from .base import DistlockError, Unavailable
from .zookeeper_marks import MARKS
from .zookeeper_marks import decode as decode_mark
from .zookeeper_place import RECORDED
from .zookeeper_record import decoded, encoded, last_token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .zookeeper_states import Reader

_BATCH = 100
_UNSTAMPED = RECORDED + 60
"""Seconds that a lock may be in use after its record was written: a record of such an age and a TTL."""


Steps = list[Any]
"""Of one transaction; none for what has to stay."""


class Purge(NamedTuple):
    reader: Reader
    clock: Callable[[], float]
    wanted: Callable[[str], bool]
    unused_for: float
    timeout: float

    def locks(self, within: str) -> Iterator[str]:
        return self._purged(within, self._lock)

    def fences(self, within: str) -> Iterator[str]:
        """A late check with an older token, which had read the register before, may lower the one that a later check
        has made since: registers are to go when nobody uses the resource."""
        return self._purged(within, self._registers)

    def _purged(self, within: str, remove: Callable[[str, list[str], list[Any], float], Steps]) -> Iterator[str]:
        """What is of an unknown layout stays, and is told behind the last."""
        problem: DistlockError | None = None
        found = self.reader.ask(self.clock() + self.timeout, Sync(within), GetChildren2(within, None))[1]
        names = (
            [] if isinstance(found, Exception) else sorted(filter(self.wanted, filter(None, map(decoded, found[0]))))
        )
        for start in range(0, len(names), _BATCH):
            until = self.clock() + self.timeout
            batch = names[start : start + _BATCH]
            folders = [f"{within}/{encoded(name)}" for name in batch]
            requests = [ask for folder in folders for ask in (GetData(folder, None), _children(folder))]
            answers = iter(self.reader.ask(until, *requests))
            removed: dict[str, Steps] = {}
            for name, folder, record, children in zip(batch, folders, answers, answers, strict=True):
                if isinstance(record, Exception) or isinstance(children, Exception):
                    continue  # gone meanwhile
                try:
                    removed[name] = remove(folder, children[0], record, until)
                except Unavailable as error:
                    if not error.permanent:
                        raise
                    problem = problem or error
            going = [name for name in removed if removed[name]]
            done = self.reader.ask(until, *(Transaction(removed[name]) for name in going))
            yield from (name for name, answer in zip(going, done, strict=True) if answer is None)
        if problem is not None:
            raise problem

    def _lock(self, folder: str, children: list[str], record: Any, until: float) -> Steps:
        stored, stat = record
        # Without a record it is somebody else's, whose client may count on a folder that it has made.
        if last_token(stored, folder) is None or set(children) - {MARKS}:
            return []
        unstamped = _UNSTAMPED if self.unused_for > 0 else 0.0
        if not self._is_unused(stat, self.unused_for + unstamped, until):
            return []
        marks: Steps = []
        if children:
            within = f"{folder}/{MARKS}"
            for path, answer in self._read(within, until):
                mark = decode_mark(answer, path)
                if mark is None or mark.until >= self.reader.server_time(until):
                    return []
                marks.append(Delete(path, answer[1].version))
            # What need not be remembered may go though the lock should stay; a step has a greatest size.
            while len(marks) > _BATCH:
                self.reader.ask(until, Transaction(marks[:_BATCH]))
                del marks[:_BATCH]
            marks.append(Delete(within, -1))
        return [*marks, Delete(folder, stat.version)]

    def _registers(self, folder: str, children: list[str], record: Any, until: float) -> Steps:
        registers = self._read(folder, until) if children else []
        for path, answer in registers:
            last_token(answer[0], path)
            if not self._is_unused(answer[1], self.unused_for, until):
                return []
        gone = [Delete(path, answer[1].version) for path, answer in registers]
        return [*gone, Delete(folder, record[1].version)]

    def _read(self, folder: str, until: float) -> list[tuple[str, Any]]:
        found = self.reader.ask(until, _children(folder))[0]
        paths = [] if isinstance(found, Exception) else [f"{folder}/{node}" for node in found[0]]
        read: list[tuple[str, Any]] = []
        for start in range(0, len(paths), _BATCH):
            some = paths[start : start + _BATCH]
            answers = self.reader.ask(until, *(GetData(path, None) for path in some))
            read += [found for found in zip(some, answers, strict=True) if not isinstance(found[1], Exception)]
        return read

    def _is_unused(self, stat: Any, seconds: float, until: float) -> bool:
        return bool(self.reader.server_time(until) - stat.mtime / 1000 >= seconds)


def _children(folder: str) -> Any:
    return GetChildren2(folder, None)
