"""What doctor found, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from distlock.doctor.measures import shown as measured
from distlock.durations import format_duration

from .render import print_table, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlock.doctor.catalogue import Noted
    from distlock.doctor.report import Report

_COLOURS = {"warning": "bold red", "note": "yellow"}


def print_report(report: Report) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, text in _rows(report):
        table.add_row(name, shown(text))
    print_table(table)
    for noted in report.found:
        _print_finding(noted)
    if report.failure is None:
        print(f"\n{_counted(report)}")


def _rows(report: Report) -> Iterator[tuple[str, str]]:
    yield "backend", f"{report.chosen.shown} ({_chosen_by(report)})"
    if report.probe:
        yield "server", report.probe.server
        offset = report.probe.clock_offset
        if offset is not None:
            yield "its clock", f"{measured(abs(offset))} {'ahead of' if offset > 0 else 'behind'} ours"
    if report.first_answer is not None:
        yield "first answer", f"after {measured(report.first_answer)}, with a new connection"
    trips = report.trips
    if trips:
        acquire = "" if trips.acquire is None else f"; a free lock was had in {measured(trips.acquire)}"
        yield trips.of, f"{trips.number}: median {measured(trips.median)}, slowest {measured(trips.longest)}{acquire}"
    records = report.records
    if records:
        slowest = f"slowest renewal {measured(records.longest)}"
        yield "on record", f"{records.runs} runs in {format_duration(records.since)}: {slowest}"
    pauses = report.pauses
    yield "pauses", f"longest {measured(pauses.longest)} in {format_duration(round(pauses.watched, 1))}"
    proposal = report.proposal
    yield "proposed", f"--ttl {format_duration(proposal.ttl)}: a dead host's lock is free again {_within(report)}"
    for number, reason in enumerate(proposal.reasons):
        yield "because" if number == 0 else "", reason


def _chosen_by(report: Report) -> str:
    origin = report.chosen.origin
    return f"chosen by {'-b' if origin == '--backend' else origin}" if origin else "nobody's choice: the default"


def _within(report: Report) -> str:
    return f"within {format_duration(round(report.proposal.recovered_within, 1))}"


def _print_finding(noted: Noted) -> None:
    meaning, evidence, remedy = noted.finding
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column()
    table.add_row(Text(noted.level, style=_COLOURS[noted.level]), shown(meaning))
    table.add_row("  found", shown(evidence))
    table.add_row("  do", shown(remedy))
    print()
    print_table(table)


def _counted(report: Report) -> str:
    warnings = sum(noted.level == "warning" for noted in report.found)
    if not warnings:
        return "Nothing to warn of."
    return f"{warnings} warning{'s' if warnings > 1 else ''}."
