"""``--require``: a backend of a lower class starts nothing, and one that nobody named is no choice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import Lab
from servers import RedisServer


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, "")  # an empty DISTLOCK_BACKEND names nothing
    yield made
    made.close()


def refused(lab: Lab, *options: str) -> str:
    mark = lab.folder / "mark"
    done = lab.run(*options, "job", "--", "touch", str(mark))
    line = done.stderr.decode()
    assert (done.returncode, done.stdout, line.count("\n")) == (77, b"", 1), line
    assert not mark.exists()
    return line


def test_the_embedded_default_is_no_choice_for_correctness(lab: Lab) -> None:
    assert "no backend is named" in refused(lab, "--require", "correctness")
    assert lab.run("--require", "efficiency", "job", "true").returncode == 0


@pytest.mark.parametrize("options", [("-b", "local:"), ("--backend", "local:"), ()])
def test_named_it_is_one(lab: Lab, options: tuple[str, ...]) -> None:
    named = {} if options else {"DISTLOCK_BACKEND": "local:"}
    done = lab.run(*options, "--require", "correctness", "job", "true", environment=named)
    assert (done.returncode, done.stderr) == (0, b"")


def test_redis_is_for_efficiency_and_nothing_is_left_there(lab: Lab, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis").running() as server:
        line = refused(lab, "-b", server.url, "--require", "correctness")
        assert "failover" in line
        assert server.command("DBSIZE") == 0
        done = lab.run("-b", server.url, "--require", "efficiency", "job", "true")
        assert (done.returncode, done.stderr) == (0, b"")
