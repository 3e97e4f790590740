"""What users install: the files of the wheel and of the sdist, and the command from them, far from the repository.

Nothing here needs the network: the build runs without isolation, and the new environment borrows the dependencies of
the one that the tests run in.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import distlock
import distlock.backends
import distlock.backends.base
import distlock.cli
import distlock.cli.main
from distlock import __version__

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"src/distlock": "distlock", "cli": "distlock/cli", "backends": "distlock/backends"}
SHARED = {
    "completions/distlock.bash": "share/bash-completion/completions/distlock",
    "completions/_distlock": "share/zsh/site-functions/_distlock",
    "completions/distlock.fish": "share/fish/vendor_completions.d/distlock.fish",
    "man/distlock.1": "share/man/man1/distlock.1",
}


def run(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Its stdout; on failure a message with all it said."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of its own with the files of this one as they are now, committed or not: nothing that lies around
    ignored gets in, and nothing is written to the tree under test."""
    tree = tmp_path_factory.mktemp("tree") / "distlock"
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], ROOT)
    for name in filter(None, listed.split("\0")):
        if os.path.lexists(ROOT / name):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    run([*git, "init", "-q"], tree)
    run([*git, "add", "--all"], tree)
    run([*git, "commit", "-q", "-m", "all"], tree)
    return tree


@pytest.fixture(scope="module")
def built(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from that sdist, as `make dist` does."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out], tree)
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def build_wheel(tree: Path, out: Path) -> Path:
    run([sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", out], tree)
    (wheel,) = out.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names))
        return {name: archive.read(name) for name in names}


def expected_files(tree: Path) -> dict[str, bytes]:
    """Every file of the three folders, under its installed name."""
    found = {}
    for folder, package in FOLDERS.items():
        for parent, folders, files in os.walk(tree / folder):  # does not follow the links
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in files:
                file = Path(parent, name)
                found[f"{package}/{file.relative_to(tree / folder)}"] = file.read_bytes()
    return found


def test_the_wheel_holds_the_package_and_nothing_else(tree: Path, wheel: Path) -> None:
    files = contents(wheel)
    info = f"distlock-{__version__}.dist-info/"
    data = f"distlock-{__version__}.data/data/"
    package = {name: data for name, data in files.items() if name.startswith("distlock/")}
    assert package == expected_files(tree)
    assert {name: files[data + name] for name in SHARED.values()} == {
        installed: (tree / source).read_bytes() for source, installed in SHARED.items()
    }
    rest = set(files) - set(package) - {data + name for name in SHARED.values()}
    assert all(name.startswith(info) for name in rest), rest
    assert info + "licenses/LICENSE" in rest


def test_the_wheel_holds_what_is_not_python(wheel: Path) -> None:
    files = contents(wheel)
    assert "distlock/py.typed" in files
    beside = [file for folder in FOLDERS for kind in ("sql", "lua") for file in (ROOT / folder).glob(f"*.{kind}")]
    assert beside, "the local engine's SQL is at least one"
    for file in beside:
        package = "" if file.parent.name == "distlock" else f"{file.parent.name}/"
        assert f"distlock/{package}{file.name}" in files


def test_the_wheel_is_the_same_without_the_sdist_in_between(tree: Path, wheel: Path, tmp_path: Path) -> None:
    assert contents(build_wheel(tree, tmp_path)) == contents(wheel)


def test_a_clone_without_symbolic_links_builds_the_same_wheel(tree: Path, wheel: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    run(["git", "-c", "core.symlinks=false", "clone", "-q", tree, clone], tmp_path)
    assert (clone / "src/distlock/cli").is_file()
    assert contents(build_wheel(clone, tmp_path / "out")) == contents(wheel)


def test_the_sdist_can_be_tested_and_holds_no_link(tree: Path, built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2]: member for member in archive}
    assert all(member.isfile() for member in members.values())
    tracked = set(run(["git", "ls-files"], tree).split("\n")) - {"", "src/distlock/cli", "src/distlock/backends"}
    assert tracked <= set(members)
    assert set(members) - tracked == {"PKG-INFO"}


def test_metadata(wheel: Path) -> None:
    text = contents(wheel)[f"distlock-{__version__}.dist-info/METADATA"].decode()
    fields = [line.partition(": ") for line in text.partition("\n\n")[0].splitlines()]
    values: dict[str, list[str]] = {}
    for field, _, value in fields:
        values.setdefault(field, []).append(value)
    assert values["Name"] == ["distlock"]
    assert values["Version"] == [__version__]
    assert values["Requires-Python"] == [">=3.11"]
    assert values["License-Expression"] == ["Apache-2.0"]
    required = [value for value in values["Requires-Dist"] if "extra ==" not in value]
    assert all(">=" in value and "<" in value for value in required), required


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it, and in sight of this one's dependencies."""
    place = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--root-user-action=ignore", wheel], place)
    # A folder named by a .pth file comes last on the path, and .pth files in it (the editable install) are not read.
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages(place) / "borrowed.pth").write_text("".join(f"{folder}\n" for folder in sorted(folders)))
    return place


def site_packages(place: Path) -> Path:
    (found,) = place.glob("lib/python3*/site-packages")
    return found


def test_installing_leaves_nothing_but_distlock(installed: Path) -> None:
    assert {entry.name for entry in site_packages(installed).iterdir()} == {
        "distlock",
        f"distlock-{__version__}.dist-info",
        "borrowed.pth",
    }
    for shared in SHARED.values():
        assert (installed / shared).is_file()


def test_readers_and_shells_find_what_is_theirs(installed: Path, tmp_path: Path) -> None:
    """As README says."""
    share = installed / "share"
    environment = {
        "PATH": f"{installed / 'bin'}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "XDG_DATA_DIRS": f"{share}:/usr/share",
    }

    def shown(*command: str) -> str:
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert shown("man", "-w", "distlock") == str(share / "man/man1/distlock.1")
    loaded = "source /usr/share/bash-completion/bash_completion; __load_completion distlock; complete -p distlock"
    assert shown("bash", "--norc", "-c", loaded) == "complete -F _distlock distlock"
    assert "metrics" in shown("fish", "-c", "complete --do-complete 'distlock metr'")
    search = (
        f"fpath=({share}/zsh/site-functions $fpath); autoload -Uz compinit; compinit -D -u; print $_comps[distlock]"
    )
    assert shown("zsh", "-fc", search) == "_distlock"


def test_the_installed_command_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    command = [str(installed / "bin/distlock"), "--version"]
    done = subprocess.run(command, cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"distlock {__version__}\n")


def test_the_installed_modules_are_the_wheels(installed: Path, tmp_path: Path) -> None:
    program = (
        "import distlock.cli.run, distlock.backends, distlock.backends.base, sys\n"
        "for name, module in sorted(sys.modules.items()):\n"
        "    if name.partition('.')[0] in ('distlock', 'cli', 'backends'):\n"
        "        print(module.__file__)\n"
    )
    done = subprocess.run(
        [installed / "bin/python", "-W", "error", "-c", program],
        cwd=tmp_path,
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    files = [Path(line) for line in done.stdout.splitlines()]
    assert len(files) > 5
    for file in files:
        assert file.is_relative_to(site_packages(installed) / "distlock"), file


def test_the_tests_run_on_the_editable_install_of_this_tree() -> None:
    for module, file in (
        (distlock, "src/distlock/__init__.py"),
        (distlock.cli, "cli/__init__.py"),
        (distlock.cli.main, "cli/main.py"),
        (distlock.backends, "backends/__init__.py"),
        (distlock.backends.base, "backends/base.py"),
    ):
        assert module.__file__
        assert Path(module.__file__).resolve() == ROOT / file
    assert not {"cli", "backends"} & sys.modules.keys()
    scripts = Path(sysconfig.get_path("scripts"))
    assert run([scripts / "distlock", "--version"], Path("/")).startswith(f"distlock {__version__}\n")
