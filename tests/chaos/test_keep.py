"""What a campaign has kept is not written over."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from . import campaign


def test_a_folder_that_an_earlier_campaign_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sentence, before the first engine is begun with."""
    earlier = tmp_path / "redis" / "campaign"
    earlier.mkdir(parents=True)
    monkeypatch.setattr(sys, "argv", ["campaign", "--keep", str(tmp_path), "local", "redis"])
    with pytest.raises(SystemExit) as ended:
        campaign.main()
    assert ended.value.code == 2
    assert f"error: {earlier} is what an earlier campaign has written: remove it" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["redis"]
