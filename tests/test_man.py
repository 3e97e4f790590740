"""The manual: all that the application has stands in it, and the tools that people read it with have no complaint."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperOption

from distlock.cli.exits import TABLE
from distlock.cli.main import build_app

PAGE = Path(__file__).resolve().parent.parent / "man" / "distlock.1"
TEXT = PAGE.read_text()


def options_of_the_application() -> dict[str, set[str]]:
    group = typer.main.get_command(build_app())
    commands = {name: one for name, one in group.commands.items() if not one.hidden}  # type: ignore[attr-defined]
    return {
        name: {word for p in command.params if isinstance(p, TyperOption) and not p.hidden for word in p.opts}
        for name, command in commands.items()
    }


def section(title: str, kind: str = "Sh") -> str:
    found = re.search(rf"^\.{kind} {re.escape(title)}\n(.*?)(?=^\.S[hs] |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert found, f"no {title}"
    return found[1]


APPLICATION = options_of_the_application()


@pytest.mark.parametrize("command", APPLICATION)
def test_options_of_each_command_are_the_applications(command: str) -> None:
    items = [line for line in section(command, "Ss").splitlines() if line.startswith(".It ")]
    assert {f"-{word}" for line in items for word in re.findall(r"Fl (\S+)", line)} == APPLICATION[command]


def test_every_command_is_there_and_no_other() -> None:
    assert set(re.findall(r"^\.Ss (\S+)$", TEXT, re.MULTILINE)) == set(APPLICATION)


def test_exit_codes_are_the_table() -> None:
    items = re.findall(r"^\.It (.+)\n(.+)$", section("EXIT STATUS"), re.MULTILINE)
    assert [(code, meaning.replace("\\-", "-")) for code, meaning in items] == list(TABLE)


def test_variables_are_those_of_readme() -> None:
    readme = (PAGE.parent.parent / "README.md").read_text()
    told = set(re.findall(r"DISTLOCK_[A-Z_]+", section("ENVIRONMENT")))
    assert told == set(re.findall(r"DISTLOCK_[A-Z_]+", readme))


@pytest.mark.parametrize("title", ["EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES", "BUGS", "SEE ALSO"])
def test_it_has_the_sections_that_are_looked_for(title: str) -> None:
    assert section(title).strip()


@pytest.mark.parametrize(
    "words",
    [
        "etcd, which has none to ask, and local: record wall time of the hosts",
        "waits in the foreground until D is over",
        "setpriv --no-new-privs",
        "KillMode=mixed",
    ],
)
def test_what_must_not_be_lost(words: str) -> None:
    shown = subprocess.run(["mandoc", "-Tascii", "-Owidth=1000", PAGE], capture_output=True, text=True, check=True)
    plain = re.sub(r".\x08", "", shown.stdout)
    assert words in " ".join(plain.split())


@pytest.mark.parametrize(
    "command",
    [
        ["mandoc", "-Tlint", "-Wwarning"],
        ["groff", "-ww", "-mdoc", "-Tutf8", "-z"],
        ["man", "--warnings", "-E", "UTF-8", "-l"],
    ],
    ids=lambda command: command[0],
)
def test_it_is_rendered_without_a_warning(command: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [*command, PAGE],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "MANWIDTH": "80", "LC_ALL": "C.UTF-8", "MANROFFSEQ": ""},
    )
    assert done.returncode == 0
    warnings = done.stderr if command[0] != "mandoc" else done.stdout + done.stderr
    assert warnings == ""


EXAMPLES = re.findall(r"^\.Dl (.+)$", section("EXAMPLES"), re.MULTILINE)


@pytest.mark.parametrize("line", EXAMPLES)
def test_examples_are_lines_that_the_application_takes(line: str) -> None:
    """As far as its parser goes; README has the same ones, which are run."""
    words = line.replace("\\(dq", '"').partition("distlock ")[2].partition(" -- ")[0].split()
    command = typer.main.get_command(build_app()).commands[words[0]]  # type: ignore[attr-defined]
    assert {word.partition("=")[0] for word in words[1:] if word.startswith("-")} <= {
        word for p in command.params for word in p.opts
    }
