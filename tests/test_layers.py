"""Imports go downwards only: cli, core, backends.base. And no file grows past the size that one can read."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The real folders, each with the package that it is installed as. The links in src/distlock are not followed.
FOLDERS = {"cli": "distlock.cli", "backends": "distlock.backends", "src/distlock": "distlock"}
LONGEST_FILE = 300
MODULE_NAME = re.compile(r"(distlock|cli|backends)\.[\w.]+(:\w+)?")


def python_files() -> list[Path]:
    found = []
    for folder in FOLDERS:
        # rglob would follow the links.
        found += [file for file in sorted((ROOT / folder).glob("**/*.py")) if file.resolve() == file]
    return found


def module_of(file: Path) -> str:
    for folder, package in FOLDERS.items():
        if file.is_relative_to(ROOT / folder):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            return ".".join((package, *parts)).removesuffix(".__init__")
    raise AssertionError(file)


MODULES = {module_of(file): file for file in python_files()}


def imported(source: str, module: str, *, package: bool) -> Iterator[str]:
    """Every module or name that the source imports, wherever the import stands, absolute. A string that is a module's
    name counts: it is there to be imported later."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                parents = parents[: len(parents) - node.level + (1 if package else 0)]
                base = ".".join([*parents, base] if base else parents)
            # `from x import y` may mean the module x.y as well as a name in x.
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE_NAME.fullmatch(node.value):
            yield node.value.partition(":")[0]


CONTRACT = ("distlock.backends.base", "distlock.backends.probe")
"""The second holds what a method of the first gives."""


def layer(module: str) -> str:
    """cli, core, base (the contract), opener (the package that opens a URL), engine, bare (a folder's own name), or
    outside."""
    top, _, _ = module.partition(".")
    if top in ("cli", "backends"):
        return "bare"
    if top != "distlock":
        return "outside"
    if module == "distlock.cli" or module.startswith("distlock.cli."):
        return "cli"
    if any(module == part or module.startswith(f"{part}.") for part in CONTRACT):
        return "base"
    if module == "distlock.backends":
        return "opener"
    if module.startswith("distlock.backends."):
        _, _, name, *deeper = module.split(".")
        return "engine" if deeper or f"distlock.backends.{name}" in MODULES else "opener"
    return "core"


ALLOWED = {
    "cli": {"cli", "core", "opener", "base", "outside"},
    "core": {"core", "opener", "base", "outside"},
    "opener": {"engine", "opener", "base", "outside"},
    "engine": {"engine", "opener", "base", "outside"},
    "base": {"base", "outside"},
}


def upwards(source: str, module: str, *, package: bool = False) -> set[str]:
    """What the module must not import and does."""
    allowed = ALLOWED[layer(module)]
    return {name for name in imported(source, module, package=package) if layer(name) not in allowed}


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_downwards(module: str) -> None:
    file = MODULES[module]
    assert upwards(file.read_text(), module, package=file.name == "__init__.py") == set()


@pytest.mark.parametrize("file", python_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_no_file_is_longer_than_one_can_read(file: Path) -> None:
    assert len(file.read_text().splitlines()) <= LONGEST_FILE


def test_every_part_is_looked_at() -> None:
    assert {
        "distlock",
        "distlock.names",
        "distlock.supervise.supervisor",
        "distlock.cli.main",
        "distlock.backends",
        "distlock.backends.base",
        "distlock.backends.local",
    } <= set(MODULES)


@pytest.mark.parametrize(
    ("module", "source", "found"),
    [
        ("distlock.names", "from distlock.cli import main", "distlock.cli.main"),
        ("distlock.names", "from distlock import cli", "distlock.cli"),
        ("distlock.names", "import distlock.cli.main", "distlock.cli.main"),
        ("distlock.names", "from .cli.exits import code_of", "distlock.cli.exits.code_of"),
        ("distlock.names", "def f():\n    from . import cli", "distlock.cli"),
        ("distlock.names", "if TYPE_CHECKING:\n    from .cli import main", "distlock.cli.main"),
        ("distlock.names", "x = import_module('distlock.cli.main')", "distlock.cli.main"),
        ("distlock.supervise.tree", "from ..cli import main", "distlock.cli.main"),
        (
            "distlock.supervise.tree",
            "from ..backends.local import LocalBackend",
            "distlock.backends.local.LocalBackend",
        ),
        ("distlock.names", "from distlock.backends import local", "distlock.backends.local"),
        ("distlock.names", "import distlock.backends.local", "distlock.backends.local"),
        (
            "distlock.cli.run",
            "from distlock.backends.local import LocalBackend",
            "distlock.backends.local.LocalBackend",
        ),
        ("distlock.cli.run", "import backends", "backends"),
        ("distlock.cli.run", "from cli.exits import code_of", "cli.exits.code_of"),
        ("distlock.backends.local", "from distlock import clock", "distlock.clock"),
        ("distlock.backends.local", "from ..clock import boottime", "distlock.clock.boottime"),
        ("distlock.backends.local", "from distlock.cli import main", "distlock.cli.main"),
        ("distlock.backends.local", "from backends.base import Busy", "backends.base.Busy"),
        ("distlock.backends.base", "from .local import LocalBackend", "distlock.backends.local.LocalBackend"),
        ("distlock.backends.base", "from distlock.backends import open_backend", "distlock.backends.open_backend"),
    ],
)
def test_an_import_upwards_is_found(module: str, source: str, found: str) -> None:
    assert upwards(source, module) == {found}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("distlock.cli.run", "from distlock import __version__\nfrom .exits import code_of\nimport typer"),
        ("distlock.cli.run", "from distlock.backends import backend_class\nfrom distlock.backends.base import Busy"),
        ("distlock.names", "from distlock.backends import open_backend\nfrom .backends.base import Busy"),
        ("distlock.supervise.tree", "from ..clock import boottime\nfrom . import linux"),
        ("distlock.backends.local", "from .base import Busy\nfrom . import local_queue\nimport sqlite3"),
        ("distlock.backends", "SCHEMES = {'local': 'distlock.backends.local:LocalBackend'}"),
    ],
)
def test_an_import_downwards_is_none(module: str, source: str) -> None:
    assert upwards(source, module, package=module == "distlock.backends") == set()
