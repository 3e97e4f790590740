"""docs/doctor.md has every finding, in the words that are printed."""

from __future__ import annotations

import re
from pathlib import Path

from distlock.backends import SCHEMES
from distlock.doctor.catalogue import CATALOGUE
from distlock.doctor.report import VERSION

PAGE = (Path(__file__).parents[2] / "docs/doctor.md").read_text()


def test_every_finding_is_there_in_its_words() -> None:
    assert len(CATALOGUE) > 15
    sections = {
        found[1]: (found[2], " ".join(found[3].split()))
        for found in re.finditer(r"^#### `([\w-]+)`(, a note)?$(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    }
    assert list(sections) == [
        one.key for about in ("server", "host", "configuration") for one in CATALOGUE if one.about == about
    ]
    for one in CATALOGUE:
        note, text = sections[one.key]
        assert text.startswith(f"{one.meaning} Do: {one.remedy} "), one.key
        assert bool(note) is (one.level == "note")


def test_keys_are_unlike_each_other() -> None:
    assert len({one.key for one in CATALOGUE}) == len(CATALOGUE)
    assert "server" not in {one.key for one in CATALOGUE}, "of the engines' own"


def test_json_is_described() -> None:
    assert f'"version": {VERSION}' in PAGE


def test_what_engines_find_is_in_their_sources() -> None:
    """By the server's own names for it, which the table has between backticks."""
    sources = {path.name: path.read_text() for path in (Path(__file__).parents[2] / "backends").glob("*.*")}
    rows = re.findall(r"^\| (\[?[\w, ]+).*?\| (.*) \|$", PAGE.partition("by its engine")[2], re.MULTILINE)
    told = {engine.strip("[ ").lower()[:3] for engine, _ in rows[1:]} | {"red"}  # sentinels and clusters are Redis
    assert {module.rpartition(":")[0].rpartition(".")[2][:3] for module in SCHEMES.values()} <= told
    for engine, found in rows[1:]:
        prefix = engine.strip("[ ").lower().replace("sentinels", "redis")
        text = "".join(source for name, source in sources.items() if name.startswith(prefix[:3]))
        for name in re.findall(r"`([\w-]+)[^`]*`", found):
            assert name in text, (engine, name)
