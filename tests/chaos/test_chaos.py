"""A short campaign on each engine: `make chaos` runs long ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import campaign
from .sites import SITES

pytestmark = pytest.mark.faults

SECONDS = 20.0


@pytest.mark.parametrize("engine", SITES)
def test_chaos(engine: str, tmp_path: Path) -> None:
    result = campaign.run(engine, tmp_path / "campaign", seed=sum(engine.encode()), seconds=SECONDS)
    assert not result.found, "\n".join([result.summary(), *result.found])
    assert len(result.history.lives) > 5, result.summary()
    assert sum(result.faults.values()) > 5, result.summary()
