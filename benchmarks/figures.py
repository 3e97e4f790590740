"""Median and spread of a few dozen values."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import NamedTuple


class Sample(NamedTuple):
    """Values of one round, sorted."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        found = tuple(sorted(values))
        if not found:
            raise ValueError("a sample without values")
        return cls(found)

    @property
    def low(self) -> float:
        return self.values[0]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def high(self) -> float:
        """The value that nine of ten do not pass."""
        return self.values[-(-len(self.values) * 9 // 10) - 1]


def best(samples: Iterable[Sample]) -> Sample:
    """The one with the smallest median: other load on the machine adds time and never takes any away."""
    return min(samples, key=lambda sample: sample.median)
