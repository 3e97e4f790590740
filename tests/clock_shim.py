"""clock_shim.c, built."""

from __future__ import annotations

import subprocess
from pathlib import Path


def clock_shim(folder: Path) -> Path:
    """A library for LD_PRELOAD."""
    built = folder / "clock_shim.so"
    source = Path(__file__).with_name("clock_shim.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(built), str(source), "-ldl"], check=True)
    return built
