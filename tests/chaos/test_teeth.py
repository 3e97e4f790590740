"""A distlock that is broken in one place is found out by the campaign that finds nothing wrong with a sound one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from . import broken, campaign

pytestmark = pytest.mark.faults

SECONDS = 30.0


@pytest.mark.parametrize(
    ("variant", "fault", "jobs"),
    [
        ("late-deadline", "late, then a black hole", [3.0]),
        ("careless-release", "stop everything", [4.0]),
        ("deaf-supervisor", "kill renewer", [8.0]),
    ],
)
def test_what_is_broken_is_found(tmp_path: Path, variant: str, fault: str, jobs: list[float]) -> None:
    command = [sys.executable, broken.__file__, variant]
    result = campaign.run(
        "redis",
        tmp_path / "campaign",
        seed=4,
        seconds=SECONDS,
        locks=1,
        faults=[fault],
        jobs=jobs,
        modes=["deaf"],
        workers=4,
        cut_off=2,
        command=command,
    )
    assert any("two at once" in line for line in result.found), result.summary()
