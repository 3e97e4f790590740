"""What is printed: plain text, the same on a terminal and in a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .figures import Sample, best


class Target(NamedTuple):
    """A figure to reach. One that is missed is printed and fails nothing: this is no test."""

    what: str
    value: float
    limit: float
    unit: str

    @property
    def line(self) -> str:
        verdict = "reached" if self.value <= self.limit else "NOT REACHED"
        return f"{verdict:<12} {self.what}: {self.value:.2f} {self.unit}, at most {self.limit:g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others, which are numbers, to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for row in (head, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return "\n".join(lines)


def ratios(found: Mapping[str, Sequence[Sample]], yardstick: str) -> dict[str, float]:
    """Each peer's median in those of the yardstick."""
    unit = best(found[yardstick]).median
    return {name: best(samples).median / unit for name, samples in found.items()}


def timings(found: Mapping[str, Sequence[Sample]], yardstick: str) -> str:
    """Milliseconds of the best sample, the medians of all samples, and the ratio."""
    times = ratios(found, yardstick)
    rows = []
    for name, samples in found.items():
        chosen = best(samples)
        medians = " ".join(f"{sample.median:.2f}" for sample in samples)
        figures = [f"{value:.2f}" for value in (chosen.low, chosen.median, chosen.high)]
        rows.append([name, *figures, medians, f"{times[name]:.2f}"])
    return table(["ms", "min", "median", "p90", "all medians", f"x {yardstick}"], rows)
