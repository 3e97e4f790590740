"""What users type: whatever it is, it ends in time with a code of the table and lines of our own."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from distlock.cli.exits import TABLE
from processes import DISTLOCK, Lab

CODES = {int(code) for code, _ in TABLE if code.isdigit()} | {0}
WORDS = (
    *("run", "check", "fence", "status", "inspect", "release", "drill", "backends", "config", "init", "history"),
    *("metrics", "doctor", "purge", "-h", "--help", "--version", "--", "-n", "-w", "-E", "-b", "-k", "-q", "-v", "-c"),
    *("--ttl", "--require", "--max-run", "--min-hold", "--once", "--mark", "--json", "--all", "--token", "--yes"),
    *("--since", "--need", "--store", "--reset", "--config", "--label", "--max-holders", "--fail-open", "--shared"),
    *("job", "true", "0", "1", "0.1", "3", "30s", "-1", "1e9", "nan", "inf", "", " ", "*", "[", "{}", "local:"),
    *("redis://", "etcd://[", "postgresql://%", "zookeeper:///", "nonsense:", "é", "日本語", "a" * 300, "\x1b[31m"),
)
# No word leads out of the folder that all is done in.
typed = st.lists(
    st.one_of(
        st.sampled_from(WORDS),
        st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), max_size=20),
    ),
    max_size=7,
)
# A pause that was asked for is no hang, nor is a drill, which lasts several TTLs.
asks_for_time = ("drill", "--jitter", "--watch", "-w", "--wait", "--timeout")


@pytest.fixture(scope="module")
def nowhere(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Where true is the only command there is, and the shell: what is drawn is run."""
    folder = tmp_path_factory.mktemp("typed")
    true = folder / "commands" / "true"
    true.parent.mkdir()
    true.symlink_to(shutil.which("true") or "/bin/true")
    return Lab(folder, f"local://{folder / 'locks'}", {"SHELL": str(true), "PATH": str(true.parent)})


@settings(
    max_examples=120,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(arguments=typed)
@example(arguments=["run", "--max-holders", "nan", "job", "true"])
@example(arguments=["run", "-c"])
@example(arguments=["run", "job", "-c"])
def test_whatever_is_typed(nowhere: Lab, arguments: list[str]) -> None:
    if any(word in arguments for word in asks_for_time):
        arguments = [word for word in arguments if word not in asks_for_time]
    try:
        words: list[str | bytes] = [DISTLOCK, *(word.encode() for word in arguments)]
    except UnicodeEncodeError:
        return
    done = subprocess.run(
        words,
        env=nowhere.environment,
        cwd=nowhere.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode in CODES, done
    assert done.returncode != 70, done
    assert b"Traceback" not in done.stdout + done.stderr, done
    for line in done.stderr.decode(errors="replace").splitlines():
        assert line.startswith("distlock: "), done
