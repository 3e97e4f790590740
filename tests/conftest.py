from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contract.engines import ENGINES, Engine
from margins import Margin, summary
from processes import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """The command on a local backend of its own."""
    made = Lab(tmp_path, f"local://{tmp_path / 'locks'}")
    yield made
    made.close()


@pytest.fixture(scope="session", params=ENGINES, ids=lambda engine: engine.name)
def each_engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of each engine there is, one after the other."""
    engine: Engine = request.param
    with engine.serve(tmp_path_factory.mktemp(engine.name)) as url:
        yield url


@pytest.fixture
def each_lab(each_engine: str, tmp_path: Path) -> Iterator[Lab]:
    """The command on each engine: what it promises does not depend on it. Tests share the server and have a lock of
    their own each (``lab.job``)."""
    made = Lab(tmp_path, each_engine, job=f"job-{os.urandom(4).hex()}")
    yield made
    made.close()


@pytest.fixture(params=["local", "redis"])
def two_labs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    """The command on an embedded engine and on one with a server: for what is about processes, in every shade, and
    would take long on all engines."""
    (engine,) = [one for one in ENGINES if one.name == request.param]
    with engine.serve(tmp_path / "engine") as url:
        made = Lab(tmp_path, url)
        yield made
        made.close()


@pytest.fixture
def margin(record_property: Callable[[str, object], None]) -> Margin:
    """Asserts that the child was dead before the grant, and notes by how much."""
    return Margin(record_property)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in summary(terminalreporter):
        terminalreporter.write_line(line)
