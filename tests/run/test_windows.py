"""Once per window, on each engine: who is skipped, what is remembered, and that it is the fleet that remembers."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from distlock.clock import boottime
from processes import DISTLOCK, Lab, wait_until
from terminals import Terminal


def ran(lab: Lab, *options: str, command: str = "echo ran", code: int = 0) -> bool:
    done = lab.run(*options, lab.job, "--", "sh", "-c", command)
    assert (done.returncode, done.stderr) == (code, b"")
    return done.stdout == b"ran\n"


def test_once_for_a_key(each_lab: Lab) -> None:
    lab = each_lab
    assert ran(lab, "--once", "2026-11-30")
    assert not ran(lab, "--once", "2026-11-30")
    assert ran(lab, "--once", "2026-12-01")
    assert not ran(lab, "--once", "2026-11-30")
    assert ran(lab)
    lab.job += "/1"
    assert ran(lab, "--once", "2026-11-30"), "another lock"


def test_a_failed_run_closes_no_window(each_lab: Lab) -> None:
    options = ("--once", "batch 7", "--min-interval", "1h")
    assert each_lab.run(*options, each_lab.job, "--", "sh", "-c", "exit 3").returncode == 3
    assert each_lab.run(*options, "--max-run", "0.2", each_lab.job, "--", "sleep", "9").returncode == 124
    assert ran(each_lab, *options)
    assert not ran(each_lab, *options)


def test_the_interval_counts_from_the_start(each_lab: Lab) -> None:
    before = boottime()
    assert ran(each_lab, command="sleep 1; echo ran")
    assert not ran(each_lab, "--min-interval", "1h")
    wait_until(lambda: ran(each_lab, "--min-interval", "2s"), 10)
    assert boottime() - before < 8
    assert ran(each_lab), "without the option nothing is skipped"


def test_closed_at_the_start_it_stays_closed_whatever_becomes_of_the_run(each_lab: Lab) -> None:
    lab = each_lab
    for options in (("--once", "k"), ("--min-interval", "1h")):
        run = lab.start("--ttl", "3", "--mark", "start", *options, lab.job, "--", "sh", "-c", "echo started; sleep 60")
        assert run.stdout
        assert run.stdout.readline() == b"started\n"
        run.kill()
        run.wait(5)
        assert not ran(lab, "-w", "5", "--mark", "start", *options)
        assert not ran(lab, "-w", "5", *options)
        lab.job += "x"


def test_of_two_hosts_one_runs(each_lab: Lab) -> None:
    """Both at once: the second one waits, and finds it done."""
    script = "echo ran >> log"
    runs = [each_lab.start("--once", "today", each_lab.job, "--", "sh", "-c", script) for _ in range(4)]
    assert [run.wait(30) for run in runs] == [0] * 4
    assert (each_lab.folder / "log").read_text() == "ran\n"


def test_what_could_not_be_remembered_is_told(two_labs: Lab) -> None:
    """The lock was removed under the run, at its very end."""
    lab = two_labs
    remove = (
        "redis-cli -p {port} del lock:job > /dev/null" if lab.backend.startswith("redis:") else "rm -r engine/locks"
    )
    script = remove.format(port=lab.backend.rpartition(":")[2])
    done = lab.run("--once", "k", "job", "--", "sh", "-c", script)
    assert done.returncode == 0
    assert "later run will not know" in done.stderr.decode()


@pytest.mark.parametrize("code", ["0", "3", "255"])
def test_the_code_of_a_skip(lab: Lab, code: str) -> None:
    assert ran(lab, "--once", "k")
    assert lab.run("--once", "k", "--skip-exit-code", code, "job", "--", "true").returncode == int(code)


def test_a_skip_is_told_to_a_terminal_or_with_v_only(lab: Lab) -> None:
    assert ran(lab, "--once", "k")
    done = lab.run("-v", "--once", "k", "job", "--", "true")
    assert done.stderr.decode().startswith("distlock: 'job': skipped: done for 'k' already, ")
    with Terminal([DISTLOCK, "run", "--once", "k", "job", "--", "true"], lab.environment) as terminal:
        terminal.read_until("skipped: done for 'k' already")
    with Terminal([DISTLOCK, "run", "-q", "--once", "k", "job", "--", "true"], lab.environment) as terminal:
        assert terminal.wait() == 0


def test_in_a_configuration(lab: Lab) -> None:
    file = lab.folder / "config.toml"
    file.write_text('[locks."job"]\nmin-interval = "1h"\nskip-exit-code = 9\n')
    assert ran(lab, "--config", str(file))
    assert lab.run("--config", str(file), "job", "--", "true").returncode == 9


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--once", ""], "KEY ''"),
        (["--once", "a\nb"], "KEY 'a\\nb'"),
        (["--once", "x" * 191], "too long"),
        (["--min-interval", "soon"], "'soon'"),
        (["--min-interval", "400d"], "too long"),
        (["--once-keep", "-1"], "'-1'"),
        (["--mark", "end"], "'end'"),
        (["--mark", "start"], "--once"),
        (["--max-run", "0"], "'0'"),
        (["--max-run", "x"], "'x'"),
        (["--min-hold", "x"], "'x'"),
        (["--fail-open", "--require", "correctness", "-b", "local:"], "contradict"),
    ],
)
def test_bad_words(lab: Lab, options: list[str], said: str) -> None:
    done = lab.run(*options, "job", "--", "touch", str(lab.folder / "mark"))
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert said in done.stderr.decode()
    assert not (lab.folder / "mark").exists()


# -- a lock that outlives its command --------------------------------------------------------------------------------


def state(lab: Lab) -> str:
    done = subprocess.run(
        [DISTLOCK, "inspect", lab.job, "--json"], env=lab.environment, capture_output=True, text=True, check=True
    )
    return str(json.loads(done.stdout)["state"])


def test_a_lock_is_kept(each_lab: Lab) -> None:
    """Without anybody waiting for it, but where an engine keeps none: there the run waits, and can be told not to."""
    lab = each_lab
    run = lab.start("--min-hold", "8", lab.job, "--", "sh", "-c", "echo ran")
    assert run.stdout
    assert run.stdout.readline() == b"ran\n"
    begun = boottime()
    if keeps_no_lock(lab.backend):
        assert lab.run("-n", lab.job, "--", "true").returncode == 75
        assert run.poll() is None
        run.terminate()
        assert run.wait(5) == 0
        assert lab.run("-n", lab.job, "--", "true").returncode == 0
        return
    assert run.wait(5) == 0
    assert state(lab) == "kept"
    assert lab.run("-n", lab.job, "--", "true").returncode == 75
    assert lab.run(lab.job, "--", "true").returncode == 0
    assert 7 < boottime() - begun < 13


def keeps_no_lock(url: str) -> bool:
    return url.startswith(("zookeeper", "postgresql+advisory"))


def test_a_command_that_takes_longer_waits_for_nothing(lab: Lab) -> None:
    assert lab.run("--min-hold", "0.5", "job", "--", "sleep", "0.6").returncode == 0
    assert lab.run("-n", "job", "--", "true").returncode == 0


# -- a command that takes too long -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", "deaf daemon", "deaf storm"])
def test_stopped_after_a_while_with_all_it_started(lab: Lab, mode: str) -> None:
    command, stamps = lab.stamper(mode)
    run = lab.start("--ttl", "6", "--max-run", "1.5", "-k", "0.5", "job", "--", *command)
    stamps.writer()
    begun = boottime()
    _, stderr = run.communicate(timeout=10)
    assert run.returncode == 124
    assert stderr.decode() == "distlock: 'job': --max-run 1.5s reached; COMMAND was stopped\n"
    assert 1.0 < stamps.last() - begun < 3.0
    last = stamps.last()
    assert lab.run("-n", "job", "--", "true").returncode == 0, "given back"
    assert stamps.last() == last


def test_longer_than_many_leases(lab: Lab) -> None:
    """Renewed all the while."""
    command, stamps = lab.stamper()
    run = lab.start("--ttl", "3", "--max-run", "7", "job", "--", *command)
    stamps.writer()
    while run.poll() is None:
        assert lab.run("-n", "job", "--", "true").returncode in ((75,) if run.poll() is None else (0, 75))
    assert run.returncode == 124


def test_in_time_nothing_happens(lab: Lab) -> None:
    assert lab.run("--max-run", "30", "job", "--", "sh", "-c", "exit 7").returncode == 7


def test_a_command_that_ends_well_on_the_stop_signal_was_stopped_all_the_same(lab: Lab) -> None:
    script = "trap 'exit 0' TERM; echo started; while :; do sleep 0.05; done"
    done = lab.run("--once", "k", "--max-run", "0.5", "job", "--", "sh", "-c", script)
    assert done.returncode == 124
    assert ran(lab, "--once", "k")


def test_the_renewer_sees_to_it_while_the_supervisor_is_stopped(lab: Lab) -> None:
    command, stamps = lab.stamper("deaf")
    run = lab.start("--max-run", "2", "-k", "0.5", "job", "--", *command)
    stamps.writer()
    os.kill(run.pid, signal.SIGSTOP)
    begun = boottime()
    wait_until(lambda: not stamps.go_on(), 8)
    assert stamps.last() - begun < 4
    os.kill(run.pid, signal.SIGCONT)
    assert run.wait(5) == 124
