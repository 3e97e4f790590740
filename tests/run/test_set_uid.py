"""A child of another uid, which the user who runs distlock may not signal."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from distlock.clock import boottime
from processes import DISTLOCK, Lab, is_alive, renewer_of, wait_until
from servers import RedisServer

pytestmark = pytest.mark.faults

UID = 47113
CAPS = "+dac_read_search"  # the interpreter may lie in a folder of root's
AS_USER = [
    "setpriv",
    f"--reuid={UID}",
    f"--regid={UID}",
    "--clear-groups",
    f"--inh-caps={CAPS}",
    f"--ambient-caps={CAPS}",
]
PROGRAM = """
#include <stdio.h>
#include <unistd.h>
int main(void) { setuid(0); printf("%d\\n", (int)getpid()); fflush(stdout); sleep(60); return 0; }
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    source, built = tmp_path / "root.c", tmp_path / "root"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-o", str(built), str(source)], check=True)
    built.chmod(0o4755)
    return built


@pytest.fixture(params=["local", "redis"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, UID, UID)
    for folder in (tmp_path, *list(tmp_path.parents)[:2]):
        folder.chmod(0o755)
    with ExitStack() as stack:
        backend = f"local://{home / 'locks'}"
        if request.param == "redis":
            backend = stack.enter_context(RedisServer(tmp_path / "redis").running()).url
        made = Lab(tmp_path, backend, {"DISTLOCK_STATE_DIR": str(home / "state")})
        yield made
        made.close()


def start(lab: Lab, *command: str) -> tuple[subprocess.Popen[bytes], int]:
    run = lab.spawn([*AS_USER, DISTLOCK, "run", "--ttl", "3", "job", "--", *command])
    assert run.stdout
    return run, int(run.stdout.readline())


def code_of_another(lab: Lab) -> int:
    return lab.spawn([*AS_USER, DISTLOCK, "run", "-n", "job", "--", "true"]).wait(10)


def test_lease_is_kept_while_it_lives_and_one_line_says_so(lab: Lab, program: Path) -> None:
    run, child = start(lab, str(program))
    run.kill()
    assert run.stderr
    line = run.stderr.readline().decode()
    until = boottime() + 5
    while boottime() < until:
        assert code_of_another(lab) == 75
        assert is_alive(child)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: code_of_another(lab) == 0, 3)
    said = f"cannot kill {child}: the lease is kept for as long as that lives and the backend lets us"
    assert line == f"distlock: {said}\n"


def test_supervisor_waits_for_it_and_says_so(lab: Lab, program: Path) -> None:
    """The lease is lost, the child cannot be stopped: the one who looks at the process table must find us there."""
    run, child = start(lab, str(program))
    os.kill(renewer_of(run.pid), signal.SIGKILL)
    assert run.stderr
    assert f"cannot kill {child}:" in run.stderr.readline().decode()
    assert run.poll() is None
    os.kill(child, signal.SIGKILL)
    assert run.wait(5) == 76


def test_no_new_privs_prevents_it(lab: Lab, program: Path) -> None:
    """What the manual recommends."""
    run, child = start(lab, "setpriv", "--no-new-privs", str(program))
    run.kill()
    wait_until(lambda: code_of_another(lab) == 0, 3)
    assert not is_alive(child)


def test_signal_that_may_not_be_passed_on_is_told_and_ends_nothing(lab: Lab, program: Path) -> None:
    run, child = start(lab, str(program))
    run.terminate()
    assert run.stderr
    assert run.stderr.readline() == b"distlock: cannot pass SIGTERM on to COMMAND: it belongs to another user\n"
    assert is_alive(child)
    os.kill(child, signal.SIGKILL)
    assert run.wait(5) == -signal.SIGKILL
