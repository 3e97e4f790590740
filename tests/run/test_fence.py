"""``distlock fence`` at a resource: what passes, what does not, and what COMMAND gets."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from processes import DISTLOCK, Lab, wait_until
from terminals import Terminal


def fence(lab: Lab, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DISTLOCK, "fence", *words],
        env=lab.environment | environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=lab.folder,
        stdin=subprocess.DEVNULL,
    )


def code(lab: Lab, *words: str, **environment: str) -> int:
    done = fence(lab, *words, **environment)
    assert (done.stdout, done.stderr.count("\n")) == ("", 0 if done.returncode == 0 else 1)
    return done.returncode


def test_greater_and_equal_tokens_pass(lab: Lab) -> None:
    assert [code(lab, "disk", "--token", n) for n in ("5", "5", "9", "8", "9", "0", "10")] == [0, 0, 0, 65, 0, 65, 0]
    assert code(lab, "tape", "--token", "1") == 0
    done = fence(lab, "disk", "--token", "9")
    assert done.stderr == "distlock: 'disk': token 9 is stale: 10 has been seen\n"


def test_the_token_of_the_run_is_the_default(lab: Lab) -> None:
    for _ in range(2):
        assert lab.run("job", "--", DISTLOCK, "fence", "disk").returncode == 0
    assert code(lab, "disk", DISTLOCK_FENCING_TOKEN="7") == 65


def test_holders_with_an_index_have_a_register_each(lab: Lab) -> None:
    assert code(lab, "disk", "--token", "5", DISTLOCK_HOLDER_INDEX="1") == 0
    assert code(lab, "disk", "--token", "3") == 0
    assert code(lab, "disk", "--token", "3", DISTLOCK_HOLDER_INDEX="0") == 0
    assert code(lab, "disk", "--token", "4", DISTLOCK_HOLDER_INDEX="1") == 65
    assert code(lab, "disk", "--token", "4", DISTLOCK_HOLDER_INDEX="x") == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["disk", "--token", "x"], "'x' is not a fencing token"),
        (["disk", "--token", ""], "'' is not a fencing token"),
        (["disk", "--token=-1"], "'-1' is not a fencing token"),
        (["disk", "--token", "1.5"], "'1.5' is not a fencing token"),
        (["disk", "--token", "1_0"], "'1_0' is not a fencing token"),
        (["disk", "--token", "٣"], "is not a fencing token"),
        (["disk", "--token", str(2**63)], "is too great"),
        (["disk", "--token", "9" * 5000], "is too great"),
        (["disk"], "not inside a distlock run"),
        ([], "RESOURCE"),
        (["", "--token", "1"], "RESOURCE ''"),
        (["a\nb", "--token", "1"], "RESOURCE 'a\\nb'"),
        (["x" * 201, "--token", "1"], "too long"),
        (["disk", "--reset", "--yes", "--token", "1"], "neither --token nor COMMAND"),
        (["disk", "--reset", "--yes", "--", "true"], "neither --token nor COMMAND"),
        (["disk", "--reset"], "needs --yes"),
        (["disk", "--token", "1", "--store", ""], "names no file"),
    ],
)
def test_bad_words(lab: Lab, words: list[str], said: str) -> None:
    done = fence(lab, *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    assert not (lab.folder / "state").exists() or not any((lab.folder / "state" / "fences").iterdir())


def test_a_run_without_a_token_has_none_to_show(lab: Lab) -> None:
    done = fence(lab, "disk", DISTLOCK_OWNER="me")
    assert done.returncode == 2
    assert "the backend of this run gives none" in done.stderr


def test_a_store_beside_the_resource(lab: Lab) -> None:
    assert code(lab, "disk", "--token", "5", "--store", "disk.fence") == 0
    assert code(lab, "disk", "--token", "4", "--store", "disk.fence") == 65
    assert code(lab, "disk", "--token", "4") == 0, "the default one is another"
    assert code(lab, "tape", "--token", "9", "--store", "disk.fence") == 78
    assert code(lab, "disk", "--token", "9", "--store", "none/disk.fence") == 78
    assert code(lab, "disk", "--token", "9", "--store", ".") == 78
    (lab.folder / "disk.fence").write_text("garbage")
    assert code(lab, "disk", "--token", "9", "--store", "disk.fence") == 69
    assert code(lab, "disk", "--reset", "--yes", "--store", "disk.fence") == 0
    assert code(lab, "disk", "--token", "1", "--store", "disk.fence") == 0


def test_command_is_not_run_for_a_stale_token(lab: Lab) -> None:
    assert code(lab, "disk", "--token", "5") == 0
    assert code(lab, "disk", "--token", "4", "--", "touch", "mark") == 65
    assert not (lab.folder / "mark").exists()


def test_a_command_that_is_not_there_leaves_the_register_as_it_was(lab: Lab) -> None:
    (lab.folder / "text").touch()
    assert code(lab, "disk", "--token", "5", "--", "no-such-command") == 127
    assert code(lab, "disk", "--token", "5", "--", "./text") == 126
    assert code(lab, "disk", "--token", "4") == 0


def test_command_is_the_same_process_with_everything_passed_on(lab: Lab) -> None:
    run = lab.spawn(
        [DISTLOCK, "fence", "disk", "--token", "5", "--", "sh", "-c", 'echo $$ "$1"; kill -9 $$', "x", "a  b"]
    )
    out, err = run.communicate(timeout=10)
    assert out == f"{run.pid} a  b\n".encode()
    assert (run.returncode, err) == (-signal.SIGKILL, b"")
    done = fence(lab, "disk", "--token", "5", "--", "env", "-0", LC_ALL="C")
    assert set(done.stdout.strip("\0").split("\0")) == {
        f"{k}={v}" for k, v in (lab.environment | {"LC_ALL": "C"}).items()
    }


def test_nothing_newer_gets_in_while_anything_of_the_command_lives(lab: Lab) -> None:
    """Though distlock is gone and the command, too: what it left in the background works on."""
    script = "sh -c 'while test -e busy; do sleep 0.01; done; echo old >> log' & echo started; kill -9 $$"
    (lab.folder / "busy").touch()
    old = lab.spawn([DISTLOCK, "fence", "disk", "--token", "5", "--", "sh", "-c", script])
    assert old.stdout
    assert old.stdout.readline() == b"started\n"
    assert old.wait(5) == -signal.SIGKILL
    new = lab.spawn([DISTLOCK, "fence", "disk", "--token", "6", "--", "sh", "-c", "echo new >> log"])
    locks = Path("/proc/locks")
    wait_until(lambda: f"-> FLOCK  ADVISORY  WRITE {new.pid} " in locks.read_text(), what="the newer one to wait")
    (lab.folder / "busy").unlink()
    assert new.wait(5) == 0
    assert (lab.folder / "log").read_text() == "old\nnew\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_the_register(lab: Lab, number: signal.Signals) -> None:
    lab.spawn(
        [DISTLOCK, "fence", "disk", "--token", "5", "--", "sh", "-c", "echo started; exec sleep 60"]
    ).stdout.readline()  # type: ignore[union-attr]
    new = lab.spawn([DISTLOCK, "fence", "disk", "--token", "6", "--", "true"])
    wait_until(lambda: f"WRITE {new.pid} " in Path("/proc/locks").read_text())
    new.send_signal(number)
    assert new.wait(5) == -number


def test_no_token_that_was_accepted_is_ever_lost_to_kill_9(lab: Lab) -> None:
    """Killed at any moment of its life."""
    before = time.monotonic()
    assert code(lab, "disk", "--token", "1") == 0
    usual = time.monotonic() - before
    accepted, killed = 1, 0
    for token in range(2, 42):
        run = lab.spawn([DISTLOCK, "fence", "disk", "--token", str(token)])
        time.sleep(usual * random.uniform(0.6, 1.2))  # the moment
        run.kill()
        if run.wait(5) == 0:
            accepted = token
        else:
            killed += 1
        assert code(lab, "disk", "--token", str(accepted - 1)) == 65
    assert killed, "none was killed in time"


def test_reset_asks_on_a_terminal(lab: Lab) -> None:
    assert code(lab, "disk", "--token", "5") == 0
    for answer, passes in (("n", 65), ("y", 0)):
        with Terminal([DISTLOCK, "fence", "disk", "--reset"], lab.environment) as terminal:
            terminal.read_until("?")
            terminal.press(answer + "\n")
            terminal.wait()
        assert code(lab, "disk", "--token", "4") == passes


def test_nobody_else_reads_the_default_register(lab: Lab) -> None:
    before = os.umask(0)
    try:
        assert code(lab, "disk", "--token", "5") == 0
    finally:
        os.umask(before)
    (file,) = (lab.folder / "state" / "fences").iterdir()
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent)] == [0o600, 0o700]


# -- a register that hosts share -----------------------------------------------------------------------------------


def test_a_register_in_a_backend(each_lab: Lab) -> None:
    """Or the sentence why not: what may forget keeps no register."""
    lab, store = each_lab, each_lab.backend
    done = fence(lab, lab.job, "--token", "5", "--store", store)
    if done.returncode == 77:
        assert done.stderr.count("\n") == 1
        assert store.startswith(("redis", "redlock", "local"))
        assert "FILE" in done.stderr or "forget" in done.stderr
        return
    codes = [code(lab, lab.job, "--token", n, "--store", store) for n in ("5", "4", "9", "8", "9")]
    assert codes == [0, 65, 0, 65, 0]
    assert code(lab, lab.job, "--token", "1", "--store", store, DISTLOCK_HOLDER_INDEX="1") == 0
    done = fence(lab, lab.job, "--token", "8", "--store", store)
    assert done.stderr == f"distlock: '{lab.job}': token 8 is stale: 9 has been seen\n"
    assert code(lab, lab.job, "--store", store, "--reset", "--yes") == 0
    assert code(lab, lab.job, "--token", "1", "--store", store) == 0
    assert code(lab, lab.job, "--token", "1") == 0, "the local one is another"


def test_nothing_runs_under_a_register_in_a_backend(lab: Lab) -> None:
    done = fence(lab, "disk", "--token", "5", "--store", "redis://u:hunter2@127.0.0.1", "--", "touch", "mark")
    assert done.returncode == 2
    assert "FILE" in done.stderr
    assert "hunter2" not in done.stderr
    assert not (lab.folder / "mark").exists()


def test_a_store_by_its_name_in_the_configuration(lab: Lab) -> None:
    (lab.folder / "config.toml").write_text('backend = "p"\n[backends.p]\nurl = "local:"\n')
    lab.environment["DISTLOCK_CONFIG"] = str(lab.folder / "config.toml")
    assert code(lab, "disk", "--token", "5", "--store", "p") == 77
    assert not (lab.folder / "p").exists()
    assert code(lab, "disk", "--token", "5", "--store", "./p") == 0


def test_a_store_that_is_no_backend(lab: Lab) -> None:
    assert code(lab, "disk", "--token", "5", "--store", "s3://bucket/key") == 78
    assert code(lab, "disk", "--token", "5", "--store", "a:b") == 0
    assert (lab.folder / "a:b").exists()
