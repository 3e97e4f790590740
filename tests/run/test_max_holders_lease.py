"""One of several holders whose lease is over: its child is dead before anybody else has its place, and the others' are
not touched."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from contending import Contender
from distlock.clock import boottime
from margins import Margin
from processes import Lab, Stamps, is_alive, renewer_of, wait_until

pytestmark = pytest.mark.faults

TTL = 3.0
OF = 2


def stamping(lab: Lab, mode: str, name: str, ttl: float) -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(mode, name)
    run = lab.start("--max-holders", str(OF), "--ttl", str(ttl), lab.job, "--", *command)
    stamps.writer()
    return run, stamps


@pytest.fixture(params=[0, 1])
def two(each_lab: Lab, request: pytest.FixtureRequest) -> Iterator[tuple[subprocess.Popen[bytes], Stamps]]:
    """The holder that the test is about, at this index; the other one goes on all the while."""
    both = {}
    for index in range(OF):
        ours = index == request.param
        both[ours] = stamping(each_lab, "deaf daemon" if ours else "plain", f"stamps {index}", TTL if ours else 30.0)
    yield both[True]
    other, others = both[False]
    assert other.poll() is None
    assert others.go_on()
    other.terminate()
    assert other.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("how", ["kill", "freeze", "renewer"])
def test_nobody_has_the_place_before(
    each_lab: Lab, two: tuple[subprocess.Popen[bytes], Stamps], margin: Margin, how: str
) -> None:
    run, stamps = two
    renewer, writer = renewer_of(run.pid), stamps.writer()
    with Contender(each_lab.backend, each_lab.job, each_lab.folder, OF) as contender:
        begun = boottime()
        if how == "kill":
            run.kill()
        elif how == "renewer":
            os.kill(renewer, signal.SIGKILL)
        else:
            for pid in (run.pid, renewer, writer):
                os.kill(pid, signal.SIGSTOP)
        granted = contender.wait(2 * TTL + 3)
        margin(stamps.last(), granted)
        assert how != "kill" or granted - begun < 2.0, "not after the TTL"
        if how == "freeze":
            thawed = boottime()
            for pid in (writer, renewer, run.pid):
                os.kill(pid, signal.SIGCONT)
            wait_until(lambda: not is_alive(writer), 5)
            assert stamps.last() - thawed < 0.2
        assert contender.grant
        assert contender.grant.holders == OF
        assert run.wait(10) == (-signal.SIGKILL if how == "kill" else 76)
