"""The pictures of README: that their script still makes them, and what must not be in them."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = sorted((ROOT / "docs").glob("*.svg"))


def words(picture: Path) -> list[str]:
    return [html.unescape(word) for word in re.findall(r"<text [^>]*>([^<]*)</text>", picture.read_text())]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_loads_nothing_and_names_nobody(picture: Path) -> None:
    text = picture.read_text()
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}
    assert f"{os.uname().nodename}:" not in text
    assert "/tmp/" not in text
    assert f"docs/{picture.name}" in (ROOT / "README.md").read_text()


def test_there_are_three() -> None:
    assert [picture.name for picture in PICTURES] == ["drill.svg", "history.svg", "status.svg"]


def test_the_script_makes_them(tmp_path: Path) -> None:
    """As they are kept: the same holders, states and outcomes."""
    script = [sys.executable, str(ROOT / "docs" / "pictures.py"), str(tmp_path), "status", "history"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    for name, telling in (
        ("status.svg", ["expiring", "kept", "nightly-backup", "deploy", "waiting"]),
        ("history.svg", ["succeeded", "failed", "busy", "124", "sync-mail"]),
    ):
        for picture in (tmp_path / name, ROOT / "docs" / name):
            assert set(telling) <= set(words(picture)), picture
