from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """The command on a local backend of its own."""
    made = Lab(tmp_path, f"local://{tmp_path / 'locks'}")
    yield made
    made.close()
