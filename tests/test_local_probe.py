"""What a probe finds of a directory for local locks, each provoked on a real one (only mount tables are made up)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contenders import directory, environment
from distlock.backends.local import LocalBackend
from distlock.backends.local_probe import probe

DISK = "1 0 8:1 / / rw - ext4 /dev/sda rw\n"


def findings(path: Path, mountinfo: str = DISK) -> str:
    return "\n".join(" | ".join(finding) for finding in probe(path, mountinfo).findings)


def test_a_directory_that_is_fit(tmp_path: Path) -> None:
    path = tmp_path / "locks"
    assert findings(path) == ""
    path.mkdir(0o700)
    assert findings(path) == ""
    found = probe(path, DISK)
    assert str(path) in found.server
    assert "ext4" in found.server
    assert found.clock_offset is None  # no server, no other clock


def test_a_probe_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there"
    assert "not made yet" in LocalBackend.from_url(f"local://{path}", environment()).probe(5.0).server
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_a_network_file_system(tmp_path: Path, kind: str) -> None:
    found = findings(tmp_path / "locks", DISK + f"2 1 0:9 / {tmp_path} rw - {kind} host:/x rw\n")
    assert "Two hosts can hold the same lock" in found
    assert f"{tmp_path} is on {kind}" in found


def test_memory_is_forgotten(tmp_path: Path) -> None:
    assert "--once" in findings(tmp_path, DISK + f"2 1 0:9 / {tmp_path} rw - tmpfs none rw\n")


@pytest.mark.parametrize(
    ("mode", "meaning"),
    [
        (0o777, "Any user can free anybody's lock"),
        (0o770, "cannot be opened by the others"),
        (0o2770, ""),
        (0o700, ""),
    ],
)
def test_a_directory_that_others_can_write_to(mode: int, meaning: str) -> None:
    with directory(mode) as made:
        assert meaning in findings(made)
        assert bool(meaning) == bool(findings(made))


def _probed_elsewhere(path: Path, *prefix: str) -> str:
    """By a process of its own."""
    code = (
        "import sys; from pathlib import Path; from distlock.backends.local_probe import probe;"
        f"print(probe(Path(sys.argv[1]), {DISK!r}).findings)"
    )
    command = [*prefix, sys.executable, "-c", code, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout


def _mounted(path: Path, options: str) -> list[str]:
    path.mkdir()
    return ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs -o {options} none "$0" && exec "$@"', str(path)]


def test_little_room(tmp_path: Path) -> None:
    path = tmp_path / "locks"
    found = _probed_elsewhere(path, *_mounted(path, "size=4m,mode=700,nr_inodes=100"))
    assert "4.0 MB left" in found
    assert "files left" in found


def test_a_read_only_file_system(tmp_path: Path) -> None:
    path = tmp_path / "locks"
    assert "read-only" in _probed_elsewhere(path, *_mounted(path, "ro,size=64m,mode=700"))


def test_another_users_directory() -> None:
    with directory(0o700, 4321) as made:
        identity = ["setpriv", "--reuid=5432", "--regid=5432", "--clear-groups"]
        found = _probed_elsewhere(made, *identity)
    assert "another user's" in found
    assert "owner 4321" in found


def test_below_a_directory_that_is_closed() -> None:
    with directory(0o700) as made:
        code = (
            "import sys; from pathlib import Path; from distlock.backends.base import Refused;"
            "from distlock.backends.local_probe import probe\n"
            "try: probe(Path(sys.argv[1]), '')\n"
            "except Refused as error: print(error)"
        )
        identity = ["setpriv", "--reuid=5432", "--regid=5432", "--clear-groups"]
        command = [*identity, sys.executable, "-c", code, str(made / "locks")]
        told = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout
    assert "permission denied for uid 5432" in told
