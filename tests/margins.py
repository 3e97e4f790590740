"""How long before the next grant the old holder's child was dead: asserted in each test, told at the end of all."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest

NAME = "margin_seconds"


class Margin:
    """What one test has measured."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def __call__(self, last_stamp: float, granted: float, at_least: float = 0.0) -> None:
        self._record(NAME, granted - last_stamp)
        assert last_stamp + at_least < granted


def summary(reporter: pytest.TerminalReporter) -> list[str]:
    """The smallest ones by name, for whoever wonders how close it is."""
    found = sorted(
        (float(str(value)), report.nodeid)
        for report in reporter.getreports("passed")
        for name, value in report.user_properties
        if name == NAME
    )
    if not found:
        return []
    middle = median(margin for margin, _ in found)
    return [
        f"from the last stamp to the next grant: {len(found)} measured, median {middle:.3f} s, the smallest:",
        *(f"  {margin:.3f} {test}" for margin, test in found[:8]),
    ]
