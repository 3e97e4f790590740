"""What lies in files: configurations and journals, damaged, cut short, or somebody else's. Lease files and fence
registers have such tests beside their other ones."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distlock.backends.base import ConfigurationError
from distlock.cli.settings import configuration
from processes import DISTLOCK, Lab

KEYS = (
    "backend",
    "url",
    "password_file",
    "ca",
    "require",
    "ttl",
    "wait",
    "max-run",
    "label",
    "textfile",
    "runs",
    "ttk",
)
TABLES = ("", "[backends.prod]", "[defaults]", '[locks."nightly-*"]', "[metrics]", "[journal]", "[[defaults]]", "[a.b]")
values = st.one_of(
    st.sampled_from(["1", "-1", "1e400", "true", '"30s"', '"prod"', "[]", "{}", "1979-05-27", "nan", "0x7f"]),
    st.text(max_size=12),
)
lines = st.one_of(
    st.sampled_from(TABLES), st.builds("{} = {}".format, st.sampled_from(KEYS), values), st.text(max_size=30)
)


@settings(
    max_examples=300,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=st.lists(lines, max_size=8).map("\n".join))
def test_any_configuration(tmp_path: Path, text: str) -> None:
    """It is read, or refused in one line that names the file."""
    path = tmp_path / "config.toml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    path.chmod(0o600)
    try:
        configuration(str(path))
    except ConfigurationError as error:
        assert "\n" not in str(error)
        assert str(path) in str(error)


@pytest.mark.parametrize("seed", range(6))
def test_any_journal(lab: Lab, seed: int) -> None:
    """A run is not hindered by it; history and metrics say what is wrong, or show what there is."""
    assert lab.run("job", "true").returncode == 0
    path = Path(lab.environment["DISTLOCK_STATE_DIR"]) / "journal.db"
    draw, data = random.Random(seed), bytearray(path.read_bytes())
    if seed == 0:
        data = bytearray()
    elif seed == 1:
        del data[draw.randrange(len(data)) :]
    else:
        for _ in range(4**seed):
            data[draw.randrange(len(data))] = draw.randrange(256)
    for leftover in path.parent.glob("journal.db-*"):
        leftover.unlink()
    path.write_bytes(data)
    for command in (["history"], ["history", "--json"], ["metrics"], ["run", "job", "true"], ["history"]):
        done = subprocess.run([DISTLOCK, *command], env=lab.environment, capture_output=True, timeout=30, check=False)
        assert done.returncode in ((0,) if command[0] == "run" else (0, 69)), (command, done)
        assert b"Traceback" not in done.stderr
        assert b"internal error" not in done.stderr
        assert all(line.startswith("distlock: ") for line in done.stderr.decode().splitlines()), (command, done)
