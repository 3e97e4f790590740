"""What doctor finds on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contenders import directory
from distlock import dependencies
from distlock.backends.base import ConfigurationError
from distlock.doctor import host
from distlock.doctor.catalogue import Noted
from distlock.doctor.host import StateDirectory, directory_findings, library_findings, pause_findings
from distlock.doctor.measures import Pauses, watch_pauses
from processes import wait_until


def keys(found: Iterator[Noted] | list[Noted]) -> list[str]:
    return [noted.key for noted in found]


def test_a_directory_that_will_do(tmp_path: Path) -> None:
    assert keys(directory_findings(tmp_path)) == []
    assert keys(directory_findings(tmp_path / "yet/to/be/made")) == []
    assert list(tmp_path.iterdir()) == [], "nothing is left, nothing is made"


def in_a_mount_namespace(script: str) -> str:
    program = "from distlock.doctor.host import directory_findings as d; from pathlib import Path\n"
    program += "for path in ('/mnt', '/mnt/below'): print(*[(n.key, n.finding.evidence) for n in d(Path(path))])"
    return subprocess.run(
        ["unshare", "--mount", "sh", "-euc", f'{script}; exec {sys.executable} -c "$1"', "sh", program],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    ("script", "key", "words"),
    [
        ("mount -t tmpfs -o size=64k tmpfs /mnt; cat /dev/zero >/mnt/x 2>/dev/null || :", "full", "/mnt: No space"),
        ("mount -t tmpfs -o size=512k tmpfs /mnt", "full", "512 KiB are left"),
        ("mount -t tmpfs -o ro tmpfs /mnt", "unwritable", "/mnt: Read-only"),
    ],
)
def test_a_disk_that_will_not(script: str, key: str, words: str) -> None:
    at_it, below = in_a_mount_namespace(script).splitlines()
    assert f"state-directory-{key}" in at_it
    assert words in at_it
    assert "state-directory-" in below


def test_no_inode_is_left() -> None:
    found = in_a_mount_namespace(
        "mount -t tmpfs -o nr_inodes=3 tmpfs /mnt; mkdir /mnt/below; touch /mnt/x 2>/dev/null || :"
    )
    assert found.count("state-directory-full") == 2


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_directory_of_somebody_else(mode: int) -> None:
    with directory(mode) as path:
        program = f"""
import os, sys
from pathlib import Path
from distlock.doctor.host import directory_findings
os.setresuid(47113, 47113, 47113)
print(*[n.key for name in ("", "below") for n in directory_findings(Path({str(path)!r}, name))])
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "state-directory-unwritable state-directory-unwritable\n"


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    for path in (tmp_path / "x", tmp_path / "x/below"):
        (found,) = directory_findings(path)
        assert found.key == "state-directory-unwritable"
        assert found.finding.evidence == f"{tmp_path}/x: Not a directory"


def test_a_disk_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FIFO in the way: opening it waits for a reader that does not come."""
    monkeypatch.setattr(host, "_PATIENCE", 0.2)
    trial = tmp_path / f"doctor.{os.getpid()}"
    os.mkfifo(trial)
    flags = os.O_EXCL | os.O_CREAT
    opened = os.open
    monkeypatch.setattr(os, "open", lambda path, how, mode=0o777: opened(path, how & ~flags, mode))
    directory = StateDirectory(lambda: tmp_path)
    assert keys(directory.findings()) == ["state-directory-hangs"]
    assert not directory.answers
    os.close(opened(trial, os.O_RDONLY | os.O_NONBLOCK))  # so that the thread ends
    directory._thread.join(5)


def test_a_user_without_a_home() -> None:
    def find() -> Path:
        raise ConfigurationError("user 4711 has no home directory")

    (found,) = StateDirectory(find).findings()
    assert (found.key, found.finding.evidence) == ("state-directory-unwritable", "user 4711 has no home directory")


def test_pauses() -> None:
    assert keys(pause_findings(Pauses(1.5, 0.1))) == []
    (found,) = pause_findings(Pauses(1.5, 0.4))
    assert found.key == "pauses"
    assert found.finding.evidence.startswith("a pause of 400ms in 1.5s; load ")


def test_a_pause_is_seen() -> None:
    """Of a process that is stopped for a while."""
    program = "from distlock.doctor.measures import watch_pauses; print(flush=True); print(watch_pauses(3).longest)"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        time.sleep(0.3)  # it goes on to watch
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: "\nState:\tT" in Path(f"/proc/{process.pid}/status").read_text())
        stopped = time.monotonic()
        time.sleep(0.5)  # the pause that is to be seen
        paused = time.monotonic() - stopped
        process.send_signal(signal.SIGCONT)
        assert float(process.stdout.read()) > paused - 0.05


def test_calm_is_seen() -> None:
    found = watch_pauses(0.2)
    assert found.watched >= 0.2
    assert 0.0 < found.longest < found.watched


def test_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keys(library_findings()) == []
    monkeypatch.setattr(dependencies, "dependencies", lambda: {"no-such-library": ">=3,<4", "redis": "<2"})
    found = [noted.finding.evidence for noted in library_findings()]
    assert found[0] == "no-such-library is not installed; wanted is >=3,<4"
    assert found[1].startswith("redis ")
