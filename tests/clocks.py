"""Clocks that are wrong, for every process of a lab: clock_shim.c adds to one clock what a file says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from processes import Lab


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_in(tmp_path_factory.mktemp("shim"))


def built_in(folder: Path) -> Path:
    """The library."""
    built = folder / "clock_shim.so"
    source = Path(__file__).parent / "clock_shim.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(built), str(source), "-ldl"], check=True)
    return built


def with_shift(shim: Path, clock: int, file: Path) -> dict[str, str]:
    """The environment in which the file's seconds count."""
    return {"LD_PRELOAD": str(shim), "SHIFTED_CLOCK": str(clock), "SHIFT_FILE": str(file)}


def shifted(lab: Lab, shim: Path, clock: int) -> Path:
    """The file whose seconds every process of the run adds to this clock from now on."""
    shift = lab.folder / "shift"
    shift.write_text("0")
    lab.environment |= with_shift(shim, clock, shift)
    return shift


def replace(path: Path, text: str) -> None:
    """In one step: nobody reads a file that is empty for a moment."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
