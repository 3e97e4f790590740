"""``distlock drill``: what it proves on each engine, and that it can fail."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from distlock.backends import open_backend
from distlock.backends.base import Busy, ConfigurationError, Environment, Refused, Unavailable
from distlock.cli.exits import error_of
from distlock.clock import boottime
from distlock.drill import Outcome
from distlock.errors import InternalError
from distlock.supervise import tree
from processes import DISTLOCK, Lab, wait_until
from servers import RedisServer, free_port

KEYS = [
    "version",
    "backend",
    "ttl_seconds",
    "proven",
    "late_writes_refused",
    "late_writes_accepted",
    "late_job_dead_after_seconds",
    "first_exit_code",
    "events",
]


def drill(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DISTLOCK, "drill", *words], env=lab.environment, capture_output=True, text=True, check=False, timeout=100
    )


@pytest.mark.faults
def test_a_frozen_holder_does_no_harm(each_lab: Lab) -> None:
    lab = each_lab
    lab.environment["TMPDIR"] = str(lab.folder)
    done = drill(lab, "--ttl", "3", "--json")
    assert done.stderr == ""
    found = json.loads(done.stdout)
    backend = open_backend(lab.backend, Environment(boottime, lambda: lab.folder))
    try:
        if not backend.token_scope:
            assert (done.returncode, found["proven"]) == (1, False)
            assert "no fencing tokens" in found["reason"]
            return
        drilled = [state for state in backend.locks(5.0) if state.name.startswith("distlock drill")]
    finally:
        backend.close()
    assert done.returncode == 0, done.stdout
    assert list(found) == KEYS
    assert found["proven"] is True
    assert found["late_writes_refused"] > 0
    assert found["late_writes_accepted"] == 0
    assert found["late_job_dead_after_seconds"] <= 0.2
    assert found["first_exit_code"] == 76
    times = [event["at_seconds"] for event in found["events"]]
    assert times == sorted(times)
    whats = " / ".join(event["what"] for event in found["events"])
    order = ["granted", "freezes all", "is over", "greater token", "job go on", "guards go on", "dead", "late writes"]
    places = [whats.index(word) for word in order]
    assert places == sorted(places)
    assert not [state for state in drilled if state.waiters]
    assert not list(lab.folder.glob("distlock-drill-*"))


@pytest.mark.faults
def test_for_people_it_is_a_timeline_of_plain_lines(lab: Lab) -> None:
    done = drill(lab, "--ttl", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\033" not in done.stdout
    assert done.stdout.count("proven: ") == 2
    assert "NOT PROVEN" not in done.stdout


@pytest.mark.parametrize(("ttl", "said"), [("1", "'1'"), ("x", "'x'"), ("1h", "'1h'"), ("-3", "'-3'")])
def test_a_ttl_that_will_not_do(lab: Lab, ttl: str, said: str) -> None:
    done = drill(lab, f"--ttl={ttl}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


def test_a_backend_that_does_not_answer(lab: Lab) -> None:
    done = drill(lab, "-b", f"redis://:hunter2@127.0.0.1:{free_port()}", "--ttl", "3")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (69, "", 1)
    assert "Connection refused" in done.stderr
    assert "hunter2" not in done.stderr


def test_it_ends_as_the_run_inside_of_it_did(lab: Lab) -> None:
    """Whoever may look, and not lock."""
    with RedisServer(lab.folder / "redis").running() as server:
        server.command("ACL", "SETUSER", "looker", "on", ">secret", "~*", "&*", "+@all", "-set")
        done = drill(lab, "-b", f"redis://looker:secret@127.0.0.1:{server.port}", "--ttl", "3")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (77, "", 1)
    assert "the first holder ended with 77: " in done.stderr


PASSED_ON = {69: Unavailable, 75: Busy, 77: Refused, 78: ConfigurationError}


@pytest.mark.parametrize("code", [0, 1, 3, 69, 70, 75, 76, 77, 78, 126])
def test_codes_that_are_passed_on(code: int) -> None:
    assert error_of(code) is PASSED_ON.get(code, InternalError)


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_it_takes_everything_with_it(lab: Lab, number: signal.Signals) -> None:
    lab.environment["TMPDIR"] = str(lab.folder)
    run = lab.spawn([DISTLOCK, "drill", "--ttl", "30"])
    (folder,) = wait_until(lambda: list(lab.folder.glob("distlock-drill-*")))
    wait_until((folder / "first").exists)
    processes = tree.descendants(run.pid, frozenset())
    run.send_signal(number)
    assert run.wait(10) == 128 + number
    wait_until(lambda: not any(tree.is_alive(process) for process in processes))
    assert not folder.exists()


GOOD = Outcome((), refused=3, accepted_late=0, died_after=0.1, code=76)


def test_what_proves_and_what_does_not() -> None:
    assert GOOD.proven
    for worse in (
        GOOD._replace(refused=0),
        GOOD._replace(accepted_late=1),
        GOOD._replace(died_after=0.3),
        GOOD._replace(died_after=None),
        GOOD._replace(code=0),
        GOOD._replace(code=None),
    ):
        assert not worse.proven
