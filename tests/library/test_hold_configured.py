"""hold and the configuration: the backend as the command would choose it, and the class that anybody asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

import distlock


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("DISTLOCK_CONFIG", str(path))
    monkeypatch.delenv("DISTLOCK_BACKEND", raising=False)
    return path


def write(file: Path, top: str = 'backend = "here"', more: str = "") -> None:
    folder = file.parent
    profiles = f'[backends.here]\nurl = "local://{folder}/here"\n[backends.there]\nurl = "local://{folder}/there"\n'
    file.write_text(f"{top}\n{profiles}{more}")


def had_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir())


def test_backend_of_the_configuration(file: Path) -> None:
    write(file)
    with distlock.hold("job"):
        assert had_in(file.parent) == ["here"]


def test_backend_by_name(file: Path) -> None:
    write(file)
    with distlock.hold("job", backend="there"):
        assert had_in(file.parent) == ["there"]


def test_backend_of_a_lock(file: Path) -> None:
    write(file, more='[locks."nightly-*"]\nbackend = "there"\n')
    with distlock.hold("nightly-1"):
        assert had_in(file.parent) == ["there"]


def test_no_such_backend(file: Path) -> None:
    write(file)
    with pytest.raises(distlock.ConfigurationError, match="did you mean there"):
        distlock.hold("job", backend="ther")


def test_options_of_run_do_not_matter_here(file: Path) -> None:
    write(file, more='[defaults]\nttl = 77\nwait = "5m"\nlater-option = true\n')
    with distlock.hold("job") as lease:
        assert lease.ttl == 30


@pytest.mark.parametrize("table", ["[defaults]", '[locks."job"]'])
def test_class_that_the_configuration_asks_for(file: Path, table: str) -> None:
    write(file, more=f'{table}\nrequire = "correctness"\n')
    with distlock.hold("job"):
        pass
    with (
        pytest.raises(distlock.Refused, match="efficiency locks"),
        distlock.hold("job", require="efficiency", backend="redis://127.0.0.1:1"),
    ):
        raise AssertionError("the body ran without the lock")


def test_class_that_a_backend_asks_for(file: Path) -> None:
    file.write_text('[backends.fast]\nurl = "redis://127.0.0.1:1"\nrequire = "correctness"\n')
    with (
        pytest.raises(distlock.Refused, match="fast is for efficiency locks"),
        distlock.hold("job", backend="fast"),
    ):
        raise AssertionError("the body ran without the lock")


def test_class_that_is_none(file: Path) -> None:
    write(file, more='[defaults]\nrequire = "safety"\n')
    with pytest.raises(distlock.ConfigurationError, match=r"\[defaults\] require='safety' is none of efficiency"):
        distlock.hold("job")


def test_broken_file(file: Path) -> None:
    file.write_text("backend =")
    with pytest.raises(distlock.ConfigurationError, match=r"config.toml:1:"):
        distlock.hold("job")
