"""The lease file: whole at any time, ours alone, and gone when the lease is."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from distlock.backends.base import Grant
from distlock.clock import boot_id, boottime_offset
from distlock.leasefile import KeptLeaseFile, LeaseFile
from distlock.renewal import Schedule
from fakes import a_grant

DAY = 86400.0


@pytest.fixture
def file(tmp_path: Path) -> LeaseFile:
    return LeaseFile(tmp_path / "state", "0123abcd", "redis://job:***@cache")


def test_what_a_job_finds(file: LeaseFile, tmp_path: Path) -> None:
    file.write(Grant("nächtlich", "0123abcd", 7, 30.0, 1000.0), 1023.2, 1028.2)
    assert file.path == tmp_path / "state" / "leases" / "0123abcd.json"
    assert json.loads(file.path.read_bytes()) == {
        "version": 1,
        "name": "nächtlich",
        "owner": "0123abcd",
        "token": 7,
        "holder_index": 0,
        "max_holders": 1,
        "backend": "redis://job:***@cache",
        "ttl_seconds": 30.0,
        "soft_deadline_boottime": 1023.2,
        "hard_deadline_boottime": 1028.2,
        "boottime_offset_seconds": boottime_offset(),
        "boot_id": boot_id(),
    }


def test_the_boot_id_is_the_kernels() -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_no_token_is_none(file: LeaseFile) -> None:
    file.write(a_grant(1000.0)._replace(token=None), 1023.2, 1028.2)
    assert json.loads(file.path.read_bytes())["token"] is None


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_reads_it_whatever_the_umask(file: LeaseFile, umask: int) -> None:
    before = os.umask(umask)
    try:
        file.write(a_grant(1000.0), 1023.2, 1028.2)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700


def test_a_reader_keeps_a_whole_file_while_it_is_renewed(file: LeaseFile) -> None:
    file.write(a_grant(1000.0), 1023.2, 1028.2)
    with file.path.open() as reading:
        file.write(a_grant(1010.0, ttl=31.0), 1033.2, 1038.2)
        assert json.load(reading)["hard_deadline_boottime"] == 1028.2
    assert json.loads(file.path.read_bytes())["hard_deadline_boottime"] == 1038.2
    assert os.listdir(file.path.parent) == ["0123abcd.json"]


def test_half_a_file_from_before_is_overwritten(file: LeaseFile) -> None:
    file.path.with_suffix(".new").write_text("x" * 5000)
    file.write(a_grant(1000.0), 1023.2, 1028.2)
    assert json.loads(file.path.read_bytes())["name"] == "nightly"


def test_no_link_is_followed(file: LeaseFile, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    file.path.with_suffix(".new").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        file.write(a_grant(1000.0), 1023.2, 1028.2)
    assert target.read_text() == "precious"


def test_one_that_cannot_be_written_is_an_os_error_and_leaves_the_last_one(file: LeaseFile) -> None:
    file.write(a_grant(1000.0), 1023.2, 1028.2)
    file.path.with_suffix(".new").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        file.write(a_grant(1010.0), 1033.2, 1038.2)
    assert json.loads(file.path.read_bytes())["hard_deadline_boottime"] == 1028.2


def test_removed_with_what_was_being_written_and_again(file: LeaseFile) -> None:
    file.write(a_grant(1000.0), 1023.2, 1028.2)
    file.path.with_suffix(".new").write_text("{")
    other = file.path.with_name("another.json")
    other.write_text("{}")
    file.remove()
    assert os.listdir(file.path.parent) == ["another.json"]
    file.remove()


# -- what killed renewers left -------------------------------------------------------------------------------------

NOW = 500_000.0


@pytest.fixture
def leave(file: LeaseFile) -> Callable[..., Path]:
    def leave(hard: float, *, age: float = 0.0, boot: str | None = None, text: str | None = None) -> Path:
        """A file of this boot unless told otherwise, last written ``age`` seconds ago."""
        path = file.path.with_name("left.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"boot_id": boot or boot_id(), "hard_deadline_boottime": hard, "ttl_seconds": 10 * DAY}
        path.write_text(json.dumps(content) if text is None else text)
        os.utime(path, (time.time() - age,) * 2)
        return path

    return leave


@pytest.mark.parametrize(("hard", "stays"), [(NOW + 5, True), (NOW - DAY + 60, True), (NOW - DAY - 60, False)])
@pytest.mark.parametrize("age", [0.0, 1000 * DAY, -DAY])
def test_of_this_boot_those_a_day_past_their_deadline_go_whatever_the_wall_clock_says(
    file: LeaseFile, leave: Callable[..., Path], hard: float, stays: bool, age: float
) -> None:
    path = leave(hard, age=age)
    file.remove_stale(NOW)
    assert path.exists() == stays


@pytest.mark.parametrize(("age", "stays"), [(0.0, True), (10.9 * DAY, True), (11.1 * DAY, False)])
@pytest.mark.parametrize("hard", [NOW + 5, 0.0, NOW * 1000])
def test_of_another_boot_or_host_those_go_that_were_not_renewed_for_a_ttl_and_a_day(
    file: LeaseFile, leave: Callable[..., Path], hard: float, stays: bool, age: float
) -> None:
    path = leave(hard, age=age, boot="another")
    file.remove_stale(NOW)
    assert path.exists() == stays


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", '"text"', "{}", '{"boot_id": 1}', "\x00\udcff"])
def test_what_is_no_lease_file_goes_a_day_later(file: LeaseFile, leave: Callable[..., Path], text: str) -> None:
    path = leave(0.0, text="")
    for age, stays in ((DAY - 60, True), (DAY + 60, False)):
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        os.utime(path, (time.time() - age,) * 2)
        file.remove_stale(NOW)
        assert path.exists() == stays


def test_of_this_boot_one_without_a_deadline_is_no_lease_file(file: LeaseFile, leave: Callable[..., Path]) -> None:
    text = json.dumps({"boot_id": boot_id(), "hard_deadline_boottime": None})
    assert leave(0.0, text=text, age=DAY - 60).exists()
    file.remove_stale(NOW)
    path = leave(0.0, text=text, age=DAY + 60)
    file.remove_stale(NOW)
    assert not path.exists()


def test_half_written_ones_go_too_and_folders_stop_nobody(file: LeaseFile, leave: Callable[..., Path]) -> None:
    half = leave(0.0, text="{", age=2 * DAY).rename(file.path.with_suffix(".new"))
    file.path.with_name("folder.json").mkdir()
    left = leave(0.0)
    file.remove_stale(NOW)
    assert not half.exists()
    assert not left.exists()


def test_without_a_folder_there_is_nothing_to_do(file: LeaseFile) -> None:
    file.path.parent.rmdir()
    file.remove_stale(NOW)


# -- as the renewer keeps it ---------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], KeptLeaseFile]:
    monkeypatch.setenv("DISTLOCK_STATE_DIR", str(tmp_path / "state"))
    return lambda: KeptLeaseFile("0123abcd", "redis://cache", NOTES.append)


NOTES: list[str] = []


def test_it_is_there_once_it_is_settled_and_gone_when_it_is_removed(kept: Callable[[], KeptLeaseFile]) -> None:
    file = kept()
    assert file.path == ""
    for start in (1000.0, 1010.0):
        file.write(Schedule(a_grant(start), 5.0))
        file.settle(5.0)
    path = Path(file.path)
    assert json.loads(path.read_bytes())["soft_deadline_boottime"] == Schedule(a_grant(1010.0), 5.0).soft
    file.remove()
    file.settle(5.0)
    assert not path.exists()


def test_a_disk_that_hangs_is_not_waited_for_and_gets_the_latest(
    kept: Callable[[], KeptLeaseFile], tmp_path: Path
) -> None:
    fifo = tmp_path / "state/leases/0123abcd.new"
    fifo.parent.mkdir(parents=True)
    os.mkfifo(fifo)
    file = kept()
    file.write(Schedule(a_grant(1000.0), 5.0))
    file.settle(0.2)
    began = time.monotonic()
    for start in (1010.0, 1020.0):
        file.write(Schedule(a_grant(start), 5.0))
    assert time.monotonic() - began < 1.0
    assert file.path == ""
    with fifo.open():  # the disk is back
        file.settle(5.0)
    file.write(Schedule(a_grant(1030.0), 5.0))
    file.settle(5.0)
    assert json.loads(Path(file.path).read_bytes())["soft_deadline_boottime"] == Schedule(a_grant(1030.0), 5.0).soft


def test_a_state_directory_that_is_none_keeps_nobody(kept: Callable[[], KeptLeaseFile], tmp_path: Path) -> None:
    NOTES.clear()
    (tmp_path / "state").touch()
    file = kept()
    file.write(Schedule(a_grant(1000.0), 5.0))
    file.settle(60.0)
    assert file.path == ""
    (note,) = NOTES
    assert note.startswith("no lease file: ")
