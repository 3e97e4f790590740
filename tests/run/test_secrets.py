"""A password stays where it was put: nothing that runs leave behind, say, show or start has it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import faulty_engine
from distlock.backend_url import masked
from distlock.backends import SCHEMES
from guarded_servers import ENGINES, SECRET, Guarded
from processes import DISTLOCK, Lab, wait_until

WRONG = "Falsch-0815-hunter3"


@pytest.fixture(scope="module", params=ENGINES)
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with ENGINES[request.param](tmp_path_factory.mktemp(request.param)) as server:
        yield server


def test_every_engine_is_among_them() -> None:
    assert {SCHEMES[scheme] for scheme in ENGINES} == set(SCHEMES.values())


def in_password_variable(lab: Lab, server: Guarded, secret: str) -> None:
    del lab.environment["DISTLOCK_CONFIG"]
    lab.environment |= {"DISTLOCK_BACKEND": server.url(""), "DISTLOCK_PASSWORD": secret}


def in_password_file(lab: Lab, server: Guarded, secret: str) -> None:
    private(
        lab, "secrets/config.toml", f"backend = 'p'\n[backends.p]\nurl = '{server.url('')}'\npassword_file = 'word'\n"
    )
    private(lab, "secrets/word", f"{secret}\n")


def in_url_of_a_profile(lab: Lab, server: Guarded, secret: str) -> None:
    private(lab, "secrets/config.toml", f"backend = 'p'\n[backends.p]\nurl = '{server.url(secret)}'\n")


def in_url_of_the_file(lab: Lab, server: Guarded, secret: str) -> None:
    private(lab, "secrets/config.toml", f"backend = '{server.url(secret)}'\n")


WAYS = [in_password_variable, in_url_of_a_profile, in_password_file, in_url_of_the_file]


def each_engine(*ways: Callable[[Lab, Guarded, str], None]) -> pytest.MarkDecorator:
    """An engine is given a password beside its URL or in it. Where that was read from is the same for all, so all
    ways are tried with two."""
    return pytest.mark.parametrize(
        ("guarded", "way"),
        [(engine, way) for engine in ENGINES for way in (WAYS if engine in ("local", "redis") else ways)],
        indirect=["guarded"],
        scope="module",
    )


def private(lab: Lab, name: str, text: str) -> None:
    path = lab.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, "")
    made.environment["DISTLOCK_CONFIG"] = str(tmp_path / "secrets/config.toml")
    yield made
    made.close()


def left_behind(lab: Lab) -> str:
    """Every file there is, but those that the secret was put into."""
    files = [path for path in lab.folder.rglob("*") if path.is_file() and path.parent.name != "secrets"]
    return "".join(f"{path}\n{path.read_bytes()!r}\n" for path in files)


def of_processes(lab: Lab) -> str:
    """What anybody sees of the lab's processes with ps."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(lab.folder).encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes() + (entry / "comm").read_bytes())
        except OSError:
            continue
    return repr(found)


def say_all(lab: Lab, *arguments: str) -> str:
    done = subprocess.run([DISTLOCK, *arguments], env=lab.environment, capture_output=True, cwd=lab.folder, check=False)
    return f"{arguments} {done.returncode} {done.stdout!r} {done.stderr!r}"


def check(told: str, parts: int) -> None:
    """``parts``: that something was looked at at all."""
    assert len(told) > parts
    for secret in (SECRET, WRONG):
        place = told.find(secret)
        assert place < 0, told[max(0, place - 300) : place + 50]


@each_engine(in_password_variable, in_url_of_a_profile)
def test_of_a_run_that_succeeds(lab: Lab, guarded: Guarded, way: Callable[[Lab, Guarded, str], None]) -> None:
    way(lab, guarded, SECRET)
    os.mkfifo(lab.folder / "go")
    script = 'cat "$DISTLOCK_LEASE" >lease; env >environment; echo started; read -r line <go'
    run = lab.start("-vv", "--log-to", "log", "job", "sh", "-c", script)
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    waiter = lab.start("-vv", "--log-to", "log", "--log-format", "json", "job", "true")
    wait_until(lambda: "waiting" in (lab.folder / "log").read_text(), 20)
    processes = of_processes(lab)
    assert processes.count("distlock-renew") == 2
    shown = [say_all(lab, *words) for words in (["status"], ["inspect", "job", "--json"], ["config"])]
    stored = [guarded.content()]
    (lab.folder / "go").write_text("x\n")
    said = [repr(process.communicate(timeout=30)) for process in (run, waiter)]
    assert run.returncode in (0, 1)
    assert waiter.returncode == 0
    commands = "status -a", "history --json", "metrics", "config --json", "doctor", "purge --yes"
    shown += [say_all(lab, *words.split()) for words in commands]
    check(left_behind(lab), 5000)
    check(processes, 100)
    check("".join((*said, *shown)), 500)
    stored.append(guarded.content())
    assert all("job" in content for content in stored)
    check("".join(stored), 20)


@each_engine(in_password_variable, in_url_of_a_profile)
def test_of_a_run_with_a_wrong_one(lab: Lab, guarded: Guarded, way: Callable[[Lab, Guarded, str], None]) -> None:
    """Which `local:` takes, so only its words are looked at."""
    way(lab, guarded, WRONG)
    succeed_or_fail(lab, fail=not guarded.url("").startswith("local:"))


@each_engine(in_url_of_a_profile)
def test_of_a_run_without_a_server(lab: Lab, guarded: Guarded, way: Callable[[Lab, Guarded, str], None]) -> None:
    way(lab, guarded.gone(), SECRET)
    succeed_or_fail(lab, fail=True)


def succeed_or_fail(lab: Lab, *, fail: bool) -> None:
    def run(options: list[str]) -> str:
        done = lab.run("-vv", *options, "--log-to", "log", f"job {' '.join(options)}", "true")
        assert (done.returncode != 0) is fail, done.stderr
        assert not fail or b"distlock: " in done.stderr
        return repr(done.stderr)

    def show(words: list[str]) -> str:
        return say_all(lab, *words)

    with ThreadPoolExecutor() as pool:  # at once: some engines look for a server that is gone for seconds
        said = [*pool.map(run, (["-n"], ["-w", "2"], ["-n", "--require", "correctness"]))]
        said += pool.map(show, (["status"], ["inspect", "job"], ["history", "--json"], ["config"], ["doctor"]))
    check("".join(said), 300)
    check(left_behind(lab), 1000)


def test_of_a_failure_inside(lab: Lab, guarded: Guarded) -> None:
    """With its traceback."""
    url = f"faulty:raises:{guarded.url(SECRET)}"
    lab.environment |= {"DISTLOCK_BACKEND": url, "DISTLOCK_CONFIG": ""}
    assert SECRET not in masked(url)
    command = [
        sys.executable,
        faulty_engine.__file__,
        "run",
        "-vv",
        "--ttl",
        "3",
        "--log-to",
        "log",
        "job",
        "sleep",
        "60",
    ]
    run = lab.spawn(command, environment={"PYTHONPATH": str(Path(faulty_engine.__file__).parent)})
    _, stderr = run.communicate(timeout=30)
    assert run.returncode == 76
    assert b"nobody foresaw this" in stderr
    check(stderr.decode(), 100)
    check(left_behind(lab), 1000)


def test_the_test_would_find_one(lab: Lab) -> None:
    (lab.folder / "log").write_text(f"x {SECRET}")
    with pytest.raises(AssertionError):
        check(left_behind(lab), 10)
    with pytest.raises(AssertionError):
        check("x" * 1000 + WRONG, 10)
