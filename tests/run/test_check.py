"""``distlock check`` inside of a job: good while the lease is, 76 with one line as soon as it is not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from distlock.clock import boottime
from distlock.deadline import default_grace, hard_deadline
from processes import DISTLOCK, Lab, renewer_of, wait_until

SERVICE = """
import os, subprocess, sys
signals = [__import__("signal").signal(n, __import__("signal").SIG_IGN) for n in (15, 2)]
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    done = subprocess.run([sys.argv[1], "check", *words], capture_output=True, text=True)
    print(done.returncode, (done.stdout + done.stderr).strip(), flush=True)
"""


class Job:
    """A child that runs ``check`` with the words it is told, and tells what came of it."""

    def __init__(self, lab: Lab, *options: str) -> None:
        self.run = subprocess.Popen(
            [DISTLOCK, "run", *options, lab.job, "--", sys.executable, "-c", SERVICE, DISTLOCK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=lab.environment,
            start_new_session=True,
        )
        assert self.run.stdout
        assert self.run.stdout.readline() == "ready\n"

    def check(self, *words: str) -> tuple[int, str]:
        assert self.run.stdin
        assert self.run.stdout
        self.run.stdin.write(" ".join(words) + "\n")
        self.run.stdin.flush()
        code, _, said = self.run.stdout.readline().partition(" ")
        return int(code), said.strip()

    def close(self) -> None:
        if self.run.poll() is None:
            os.kill(renewer_of(self.run.pid), signal.SIGCONT)
            self.run.kill()
        self.run.communicate()


def test_good_while_it_is_kept(each_lab: Lab) -> None:
    job = Job(each_lab, "--ttl", "6")
    try:
        begun = boottime()
        while boottime() < begun + 7:  # longer than the TTL
            for words in ((), ("--need", "2s"), ("--need=500ms",), ("--verify",)):
                assert job.check(*words) == (0, "")
        code, said = job.check("--need", "6")
        assert code == 76
        assert f"'{each_lab.job}'" in said
        assert said.endswith("6s are needed")
    finally:
        job.close()


def test_bad_as_soon_as_the_stop_is_due_and_the_renewer_says_nothing(lab: Lab) -> None:
    """The file is as the renewer left it when it was stopped: its instants count, not that it is there."""
    job = Job(lab, "--ttl", "6")
    try:
        os.kill(renewer_of(job.run.pid), signal.SIGSTOP)
        soft = hard_deadline(boottime(), 6) - default_grace(6)  # or earlier
        answers: list[tuple[int, str]] = []

        def bad() -> bool:
            answers.append(job.check())
            return answers[-1][0] != 0

        wait_until(bad, 6)
        assert boottime() < soft + 0.5
        code, said = answers[-1]
        assert code == 76
        assert "about to end" in said
    finally:
        job.close()


def test_verify_sees_what_the_file_does_not(lab: Lab) -> None:
    job = Job(lab, "--ttl", "60")
    try:
        for path in (lab.folder / "locks").iterdir():
            shutil.rmtree(path)
        assert job.check() == (0, "")
        code, said = job.check("--verify")
        assert code == 76
        assert "lease is lost" in said
    finally:
        job.close()


def check(lab: Lab, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DISTLOCK, "check", *words],
        env=lab.environment | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_outside_of_a_run(lab: Lab) -> None:
    for words in ((), ("--verify",), ("--need", "1")):
        done = check(lab, *words)
        assert (done.returncode, done.stdout) == (76, "")
        assert done.stderr == "distlock: no lease: not inside of a distlock run (DISTLOCK_OWNER is not set)\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--need", "soon"], "'soon'"),
        (["--need=-1"], "'-1'"),
        (["--need"], "--need"),
        (["--need="], "''"),
        (["more"], "more"),
        (["--unknown"], "--unknown"),
    ],
)
def test_bad_words(lab: Lab, words: list[str], said: str) -> None:
    done = check(lab, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_it_needs_neither_an_engine_nor_the_application(lab: Lab) -> None:
    """It stands before each side effect: three times what Python itself takes to start is its limit."""
    for words, loaded in ((["check"], False), (["check", "--need", "1s"], False), (["check", "--help"], True)):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", DISTLOCK, *words],
            env=lab.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert "distlock.cli.quick_check" in modules
        assert ("typer" in modules) == loaded
        assert not modules & {"redis", "sqlite3", "rich", "platformdirs"}


def test_in_a_time_namespace_of_its_own(lab: Lab) -> None:
    """A container may have a clock that is shifted by days."""
    script = f"unshare --time --boottime 100000 {DISTLOCK} check --need 20; echo $?"
    done = lab.run("--ttl", "30", "job", "--", "sh", "-c", script)
    assert (done.stdout, done.stderr) == (b"0\n", b"")
