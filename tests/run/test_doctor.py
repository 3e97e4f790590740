"""``distlock doctor`` on real servers, as an operator and as a program use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import clocks
import redis_fixtures
from clocks import replace, shifted
from contenders import environment
from distlock.backends import open_backend
from distlock.backends.base import Backend
from distlock.doctor.measures import SCRATCH
from distlock.doctor.report import VERSION
from processes import DISTLOCK, Lab, wait_until
from servers import RedisServer, free_port

server = redis_fixtures.server
shim = clocks.shim


def doctor(lab: Lab, *words: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [DISTLOCK, "doctor", *words],
        env=lab.environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=lab.folder,
        timeout=40,
    )
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done


def answer(lab: Lab, *words: str, code: int | None = None) -> dict[str, Any]:
    done = doctor(lab, "--json", *words, code=code)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    assert found["version"] == VERSION
    assert done.returncode == {"fine": 0, "warnings": 1, "unreachable": 69, "refused": 77}[found["verdict"]]
    assert done.stderr.count("\n") == (0 if done.returncode < 2 else 1)
    return found


def keys(found: dict[str, Any]) -> set[str]:
    return {finding["key"] for finding in found["findings"]}


def records(backend: Backend) -> set[str]:
    return {state.name for state in backend.locks(5.0) if not state.held}


def test_each_engine_is_measured_and_left_as_it_was(each_lab: Lab) -> None:
    """By two doctors at the same time."""
    lab = each_lab
    backend = open_backend(lab.backend, environment(lab.folder))
    try:
        before = records(backend) - {SCRATCH}
        with ThreadPoolExecutor() as pool:
            begun = time.monotonic()
            found = [*pool.map(lambda _: answer(lab, "--recovery", "1m"), range(2))]
            took = time.monotonic() - begun
        assert records(backend) - {SCRATCH} == before
        assert not backend.inspect(SCRATCH, 5.0).held
    finally:
        backend.close()
    assert took < 25.0, "ten seconds, and the two may be slow to start"
    assert any(one["round_trips"]["of"] == "renewals" for one in found)
    for one in found:
        assert one["server"]
        assert one["problem"] is None
        assert keys(one) <= {"server", "backend-of-this-command", "scratch-lock-busy", "pauses", "ttl-too-short"}
        assert one["round_trips"]["count"] > 0
        assert 0 < one["round_trips"]["median_seconds"] <= one["round_trips"]["longest_seconds"]
        assert 3.0 <= one["ttl"]["proposed_seconds"] <= 600.0
        assert one["ttl"]["meets_recovery"]


@pytest.mark.alone
def test_a_plain_setup_is_fine(lab: Lab) -> None:
    """Where the configuration names the backend."""
    (lab.folder / "config.toml").write_text(f"backend = '{lab.backend}'\n")
    del lab.environment["DISTLOCK_BACKEND"]
    lab.environment["DISTLOCK_CONFIG"] = str(lab.folder / "config.toml")
    done = doctor(lab, code=0)
    assert done.stderr == ""
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if not line.startswith(" ") and line)
    assert lines["backend"].startswith(f"{lab.backend} (chosen by ")
    assert lines["renewals"].startswith("20: median ")
    assert lines["proposed"] == "--ttl 30s: a dead host's lock is free again within 32s"
    assert lines["Nothing"] == "to warn of."
    assert "\033" not in done.stdout


@pytest.mark.alone
def test_each_finding_has_what_it_means_what_was_found_and_what_to_do(lab: Lab) -> None:
    del lab.environment["DISTLOCK_BACKEND"]
    done = doctor(lab, "--recovery", "1s", code=1)
    lines = done.stdout.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("warning  ")]
    assert len(starts) == 2
    for start in starts:
        assert lines[start + 1].startswith("  found  ")
        assert lines[start + 2].startswith("  do     ")
    assert lines[-1].startswith("2 warnings.")
    assert keys(answer(lab, "--recovery", "1s", code=1)) == {"no-backend-named", "recovery-not-met"}


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_server_that_is_not_there(lab: Lab, words: list[str]) -> None:
    """What can be said without it is said all the same."""
    lab.environment["DISTLOCK_BACKEND"] = f"redis://user:s3cret@127.0.0.1:{free_port()}"
    begun = time.monotonic()
    done = doctor(lab, *words, "--recovery", "1s", code=69)
    assert time.monotonic() - begun < 12.0
    assert done.stderr.startswith("distlock: ")
    assert done.stderr.count("\n") == 1
    assert "recovery" in done.stdout
    assert "DISTLOCK_BACKEND" in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


@pytest.mark.parametrize("when", ["from the start", "while it is measured"])
def test_a_server_that_hangs(lab: Lab, server: RedisServer, when: str) -> None:
    """A doctor that hangs as well would be of no use."""
    lab.environment["DISTLOCK_BACKEND"] = server.url
    begun = time.monotonic()
    if when == "from the start":
        server.freeze()
        process = lab.spawn([DISTLOCK, "doctor", "--json"])
    else:
        backend = open_backend(server.url, environment(Path("/nonexistent")))
        process = lab.spawn([DISTLOCK, "doctor", "--json"])
        wait_until(lambda: backend.inspect(SCRATCH, 5.0).held)
        server.freeze()
        backend.close()
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - begun < 12.0
    assert (process.returncode, err.count(b"\n")) == (69, 1)
    found = json.loads(out)
    assert (found["verdict"], found["round_trips"]) == ("unreachable", None)
    assert (found["server"] is None) is (when == "from the start")


def test_a_server_that_evicts_and_forgets(lab: Lab, server: RedisServer) -> None:
    lab.environment["DISTLOCK_BACKEND"] = server.url
    server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    server.command("CONFIG", "SET", "maxmemory", "100mb")
    found = answer(lab, code=1)
    assert any("allkeys-lru" in finding["evidence"] for finding in found["findings"])
    assert "allkeys-lru" in doctor(lab, code=1).stdout


def test_a_clock_that_is_off(lab: Lab, server: RedisServer, shim: Path) -> None:
    """This host's, by a hundred seconds: the finding is the same."""
    lab.environment["DISTLOCK_BACKEND"] = server.url
    replace(shifted(lab, shim, time.CLOCK_REALTIME), "100")
    found = answer(lab, code=1)
    assert -101.0 < found["clock_offset_seconds"] < -99.0
    told = {finding["key"]: finding["evidence"] for finding in found["findings"]}
    assert told["clock-offset"] == "the server's clock is 1m40s behind ours"


def test_a_login_that_may_look_and_not_lock(lab: Lab, server: RedisServer) -> None:
    server.command("ACL", "SETUSER", "looks", "on", ">pw", "~*", "&*", "+@read", "+@connection", "+info")
    lab.environment |= {"DISTLOCK_BACKEND": f"redis://looks@{server.place}", "DISTLOCK_PASSWORD": "pw"}
    found = answer(lab)
    assert found["verdict"] in ("warnings", "refused")
    assert found["problem"] or "not-allowed" in keys(found)
    lab.environment["DISTLOCK_PASSWORD"] = "wrong"
    found = answer(lab, code=77)
    assert found["round_trips"] is None


def test_mistakes(lab: Lab) -> None:
    for words, code in ((["--recovery", "soon"], 2), (["-b", "nonsense:"], 78), (["--config", "/none"], 78)):
        done = doctor(lab, *words, code=code)
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_renewals_on_record_count(lab: Lab) -> None:
    assert lab.run("--ttl", "3", "job", "--", "sleep", "1.5").returncode == 0
    found = answer(lab)
    assert found["renewals_on_record"]["runs"] == 1
    assert found["renewals_on_record"]["longest_seconds"] > 0


def test_the_state_directory_is_looked_at(lab: Lab) -> None:
    (lab.folder / "file").touch()
    lab.environment["DISTLOCK_STATE_DIR"] = str(lab.folder / "file/state")
    assert "state-directory-unwritable" in keys(answer(lab, code=1))


def test_a_ttl_of_the_configuration(lab: Lab) -> None:
    path = lab.folder / "config.toml"
    path.write_text("[defaults]\nttl = '2h'\n[locks.'x*']\nttl = '1s'\n")
    lab.environment["DISTLOCK_CONFIG"] = str(path)
    found = answer(lab, code=1)
    told = {finding["key"]: finding["evidence"] for finding in found["findings"]}
    assert told["ttl-too-long"] == f"2h ({path}: [defaults] ttl)"
    assert '[locks."x*"] ttl' in told["ttl-too-short"]


def test_interrupted_it_gives_its_lock_back(lab: Lab, server: RedisServer) -> None:
    lab.environment["DISTLOCK_BACKEND"] = server.url
    backend = open_backend(server.url, environment(Path("/nonexistent")))
    try:
        process = lab.spawn([DISTLOCK, "doctor"])
        wait_until(lambda: backend.inspect(SCRATCH, 5.0).held)
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=10)
        assert process.returncode == 128 + signal.SIGTERM
        assert not backend.inspect(SCRATCH, 5.0).held
    finally:
        backend.close()
