"""Pages of docs and README: links lead somewhere, and what no page's own test runs is run here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main

from distlock.cli.main import build_app
from processes import Lab

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def anchors(page: Path) -> set[str]:
    """Of its headings, as they are made where the page is shown."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)]*))?\)", page.read_text()):
        place = page.parent / target if target else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_that_are_named_exist(page: Path) -> None:
    """`distlock COMMAND --option` anywhere in a page; what stands behind NAME of a run is not ours."""
    commands = typer.main.get_command(build_app()).commands  # type: ignore[attr-defined]
    for line in re.findall(r"\bdistlock ([a-z]+(?: -[^`|\n]*)?)", page.read_text()):
        name, *words = line.partition(" -- ")[0].replace('"', " ").replace("'", " ").split()
        if name not in commands:
            assert not words, f"distlock {line}"
            continue
        known = {word for parameter in commands[name].params for word in parameter.opts}
        for word in words:
            if not word.startswith("-") or word == "--":
                continue
            if not word.startswith("--") and len(word) > 2:
                continue  # joined
            assert word.partition("=")[0].rstrip(".,;:)") in known | {"--help", "-c"}, f"distlock {line}"


def test_the_command_of_choosing(lab: Lab) -> None:
    page = (ROOT / "docs" / "choosing.md").read_text()
    (block,) = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    words = shlex.split(block)
    (lab.folder / "migrate.sh").write_text("#!/bin/sh\necho migrated\n")
    (lab.folder / "migrate.sh").chmod(0o755)
    done = lab.run(*words[2:])
    assert (words[:2], done.returncode, done.stdout) == (["distlock", "run"], 0, b"migrated\n")


def test_no_page_is_left_alone() -> None:
    """Whoever begins at README finds every page."""
    seen: set[Path] = set()
    coming = [ROOT / "README.md"]
    while coming:
        page = coming.pop().resolve()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        coming += [page.parent / target for target, _ in re.findall(r"\]\(([^)#:\s]+)(#[^)]*)?\)", page.read_text())]
    assert set(PAGES) <= seen
