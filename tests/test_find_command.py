"""Which COMMAND is meant, before the lock is asked for: the PATH of the caller, 127 and 126 told apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distlock.errors import CommandNotExecutable, CommandNotFound
from distlock.supervise.command import find_command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three folders for a PATH; the working directory is theirs."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(path: Path, mode: int = 0o755) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def path_of(*folders: Path | str) -> dict[bytes, bytes]:
    return {b"PATH": b":".join(os.fsencode(folder) for folder in folders)}


def test_words_are_kept_as_they_are_and_the_search_is_the_callers_path(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(here / "c" / "job")
    monkeypatch.setenv("PATH", "/nowhere")
    words = [b"job", b"--ttl", b"", b"a b\n", b"\xff"]
    command = find_command(words, path_of(here / "a", here / "c"))
    assert command.words == tuple(words)
    assert command.search == (os.fsencode(here / "a" / "job"), os.fsencode(here / "c" / "job"))


def test_a_path_with_a_slash_is_not_searched_for(here: Path) -> None:
    put(here / "a" / "job")
    assert find_command([b"./a/job"], path_of(here / "b")).search == (b"./a/job",)
    with pytest.raises(CommandNotFound):
        find_command([b"./job"], path_of(here / "a"))


@pytest.mark.parametrize("path", ["", ":/nowhere", "/nowhere:", "/nowhere::/nowhere"])
def test_an_empty_folder_in_the_path_is_the_working_directory(here: Path, path: str) -> None:
    put(here / "job")
    assert b"./job" in find_command([b"job"], path_of(path)).search


def test_the_working_directory_is_not_searched_otherwise(here: Path) -> None:
    put(here / "job")
    with pytest.raises(CommandNotFound):
        find_command([b"job"], path_of(here / "a"))


def test_without_a_path_the_systems_folders_are_searched(here: Path) -> None:
    put(here / "job")
    assert b"/bin/sh" in find_command([b"sh"], {}).search
    with pytest.raises(CommandNotFound):
        find_command([b"job"], {})


def test_one_that_works_is_found_behind_those_that_do_not(here: Path) -> None:
    (here / "a" / "job").mkdir()
    put(here / "b" / "job", 0o644)
    put(here / "c" / "job")
    find_command([b"job"], path_of(here / "a", here / "b", here / "c"))


@pytest.mark.parametrize("word", [b"job", b"", b"./job", b"a/job", b"/nowhere/job", b"job/x", b"file/x"])
def test_not_found(here: Path, word: bytes) -> None:
    put(here / "file")
    with pytest.raises(CommandNotFound, match=r"command not found$") as caught:
        find_command([word], path_of(here / "a", here))
    assert str(caught.value).startswith(f"'{word.decode()}': ")


def test_a_link_to_nothing_is_not_found_and_said_to_be_one(here: Path) -> None:
    (here / "a" / "job").symlink_to("nothing")
    for word in (b"job", b"a/job"):
        with pytest.raises(CommandNotFound, match=r"command not found \(a dangling link\)$"):
            find_command([word], path_of(here / "a"))


def test_a_link_to_a_program_is_one(here: Path) -> None:
    (here / "a" / "job").symlink_to(put(here / "b" / "real"))
    find_command([b"job"], path_of(here / "a"))


def test_not_executable(here: Path) -> None:
    put(here / "a" / "job", 0o644)
    (here / "b" / "job").mkdir()
    for word in (b"job", b"a/job"):
        with pytest.raises(CommandNotExecutable, match=r"'(a/)?job': is not executable$"):
            find_command([word], path_of(here / "a", here / "b"))
    with pytest.raises(CommandNotExecutable, match=r"'b/job': is a directory$"):
        find_command([b"b/job"], {})
    with pytest.raises(CommandNotExecutable, match=r"'job': is a directory$"):
        find_command([b"job"], path_of(here / "b", here / "a"))


def test_neither_a_pipe_nor_a_device_is_a_program(here: Path) -> None:
    os.mkfifo(here / "a" / "job", 0o755)
    with pytest.raises(CommandNotExecutable):
        find_command([b"job"], path_of(here / "a"))
    with pytest.raises(CommandNotExecutable):
        find_command([b"/dev/null"], {})


def test_a_name_that_is_no_text_is_found_and_shown(here: Path) -> None:
    put(Path(os.fsdecode(os.fsencode(here) + b"/a/j\xffb")))
    find_command([b"j\xffb"], path_of(here / "a"))
    with pytest.raises(CommandNotFound, match=r"^'x\\xff\\n': command not found$"):
        find_command([b"x\xff\n"], path_of(here / "a"))


def test_folder_that_may_not_be_searched_is_no_reason_to_say_not_found(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """execvp(3): EACCES on the way counts more than ENOENT elsewhere. Root may search everything, so stat is told."""

    def stat(path: bytes) -> os.stat_result:
        if path.startswith(b"/closed/"):
            raise PermissionError
        return real(path)

    real = os.stat
    monkeypatch.setattr("distlock.supervise.command.os.stat", stat)
    with pytest.raises(CommandNotExecutable, match=r"'job': permission denied$"):
        find_command([b"job"], {b"PATH": b"/closed:/nowhere"})
    put(here / "a" / "job", 0o755)
    assert find_command([b"job"], {b"PATH": b"/closed:" + bytes(here / "a")}).words == (b"job",)
