"""--version and the libraries that a release was made for."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from distlock import __version__, dependencies
from distlock.dependencies import fits, misfits
from processes import DISTLOCK

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


def test_they_are_those_of_the_project() -> None:
    named = {re.split(r"[\[<>=]", line)[0]: line for line in PROJECT["dependencies"]}
    found = dependencies.dependencies()
    assert set(found) == set(named)
    for name, bounds in found.items():
        assert set(bounds.split(",")) == set(re.split(r"^[\w.-]+(?:\[\w+\])?", named[name])[1].split(",")), name
    assert misfits() == []


@pytest.mark.parametrize(
    ("version", "bounds", "fit"),
    [
        ("8.0.0", ">=8,<9", True),
        ("8", ">=8.0,<9", True),
        ("8.10.2", ">=8.9,<9", True),
        ("7.9", ">=8,<9", False),
        ("9.0.0", "<9,>=8", False),
        ("9", ">=8,<9.0", False),
        ("0.12.0", ">=0.12,<0.13", True),
        ("1!2.0", "", True),
    ],
)
def test_bounds(version: str, bounds: str, fit: bool) -> None:
    assert fits(version, bounds) is fit


def test_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "dependencies", lambda: {"no-such-library": ">=3,<4", "typer": ">=99"})
    assert misfits() == [("no-such-library", ">=3,<4", None), ("typer", ">=99", metadata.version("typer"))]


def test_versions_of_all_that_a_report_needs() -> None:
    lines = [
        subprocess.run([DISTLOCK, word], capture_output=True, text=True, check=True).stdout.splitlines()
        for word in ("--version", "-V")
    ]
    assert lines[0] == lines[1]
    first, system, *others = lines[0]
    assert first == f"distlock {__version__}"
    assert system.startswith(f"Python {sys.version.split()[0]}, SQLite ")
    assert {line.split()[0] for line in others} == set(dependencies.dependencies())
    assert f"redis {metadata.version('redis')}" in others
    assert f"protobuf {metadata.version('protobuf')}" in next(line for line in others if line.startswith("etcd3"))


def test_no_client_library_is_loaded_for_it() -> None:
    heavy = "redis", "psycopg", "etcd3", "grpc", "kazoo", "rich", "prometheus_client"
    program = (
        (f"import sys; from distlock.cli.versions import installed; installed(); print({heavy} & sys.modules.keys())")
        .replace("('", "{'")
        .replace("')", "'}")
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_the_first_line_is_enough_for_a_script() -> None:
    done = subprocess.run(["sh", "-c", f"{DISTLOCK} --version | head -1"], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"distlock {__version__}\n", "")
