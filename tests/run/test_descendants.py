"""What a finished child left running: --descendants."""

from __future__ import annotations

import shutil
import signal
import subprocess

import pytest

from contending import Contender
from processes import Lab, is_alive, wait_until

BACKGROUND = "sleep 60 > /dev/null 2>&1 & echo $!"
DAEMON = "setsid -f sh -c 'echo $$ > daemon; exec sleep 60' > /dev/null 2>&1; until [ -s daemon ]; do sleep 0.01; done"


def _kill(pid: int) -> None:
    subprocess.run(["kill", "-9", str(pid)], check=True)
    wait_until(lambda: not is_alive(pid))


def test_left_by_default_with_one_line(lab: Lab) -> None:
    done = lab.run("job", "--", "sh", "-c", BACKGROUND)
    pid = int(done.stdout)
    assert is_alive(pid)
    assert done.returncode == 0
    assert done.stderr.decode().count("\n") == 1
    assert f"(pid {pid})" in done.stderr.decode()
    assert lab.run("-n", "job", "--", "true").returncode == 0
    _kill(pid)


@pytest.mark.parametrize("options", [["--descendants", "leave"], ["-q"]])
def test_left_in_silence_when_asked(lab: Lab, options: list[str]) -> None:
    done = lab.run(*options, "job", "--", "sh", "-c", BACKGROUND)
    assert done.stderr == b""
    _kill(int(done.stdout))


def test_daemon_in_a_session_of_its_own_is_left_in_silence(lab: Lab) -> None:
    done = lab.run("job", "--", "sh", "-c", DAEMON)
    assert (done.returncode, done.stderr) == (0, b"")
    _kill(int((lab.folder / "daemon").read_text()))


@pytest.mark.parametrize("leave", [BACKGROUND, DAEMON + "; cat daemon"])
@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "])
def test_kill_ends_them_before_the_release(lab: Lab, leave: str, deaf: str) -> None:
    done = lab.run(
        "--ttl", "6", "-k", "0.3", "--descendants", "kill", "job", "--", "sh", "-c", f"{deaf}{leave}; exit 5"
    )
    assert (done.returncode, done.stderr) == (5, b"")
    assert not is_alive(int(done.stdout))


def test_wait_keeps_the_lock_until_they_are_gone(lab: Lab) -> None:
    script = f"{DAEMON}; cat daemon; echo $$; exit 6"
    run = lab.start("--ttl", "3", "--descendants", "wait", "job", "--", "sh", "-c", script)
    assert run.stdout
    pid, child = int(run.stdout.readline()), int(run.stdout.readline())
    wait_until(lambda: not is_alive(child))
    with Contender(lab.backend, "job", lab.folder) as other:
        with pytest.raises(subprocess.TimeoutExpired):
            run.wait(4)  # longer than the TTL
        assert other.grant is None
        _kill(pid)
        assert run.wait(5) == 6
        other.wait(2)


def test_signal_while_waiting_for_them_reaches_them(lab: Lab) -> None:
    run = lab.start("--descendants", "wait", "job", "--", "sh", "-c", DAEMON + "; cat daemon; echo $$")
    assert run.stdout
    pid, child = int(run.stdout.readline()), int(run.stdout.readline())
    wait_until(lambda: not is_alive(child))
    run.send_signal(signal.SIGTERM)
    assert run.wait(5) == 0
    assert not is_alive(pid)


def test_lost_lease_ends_them_whatever_was_asked(lab: Lab) -> None:
    for policy in ("leave", "wait"):
        run = lab.start(
            "--ttl", "3", "--descendants", policy, "job", "--", "sh", "-c", DAEMON + "; cat daemon; exec sleep 60"
        )
        assert run.stdout
        pid = int(run.stdout.readline())
        shutil.rmtree(next((lab.folder / "locks").glob("*.lock")))
        assert run.wait(10) == 76
        assert not is_alive(pid)
        (lab.folder / "daemon").unlink()
