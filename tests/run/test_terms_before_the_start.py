"""A signal between the grant and the start of the command, while its window is looked at: nothing is started, and the
lock is given back at once."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import cast

import pytest

import redis_fixtures
from distlock.leasefile import KeptLeaseFile
from distlock.supervise.terms import await_lease_file
from distlock.supervise.wire import Kind, Message, channels
from processes import Lab, wait_until
from proxy import Proxy
from servers import RedisServer

pytestmark = pytest.mark.faults

LATENCY = 0.4
"""Seconds for an answer: five questions take two seconds."""
WINDOW = ("--once", "today", "--min-interval", "1h", "--mark", "start")


server = redis_fixtures.server
proxy = redis_fixtures.proxy
lab = redis_fixtures.lab_behind_proxy


def start(lab: Lab, server: RedisServer) -> subprocess.Popen[bytes]:
    """Has the lock, and asks about its window."""
    run = lab.start(*WINDOW, "job", "--", "sh", "-c", "echo started; exec sleep 60")
    wait_until(lambda: server.command("EXISTS", "lock:job") == 1, 20)
    return run


def marks(server: RedisServer) -> int:
    found = server.command("HLEN", "distlock:{lock:job}:marks")
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("answers", [0, 2])
def test_it_ends_and_the_lock_is_free(
    lab: Lab, server: RedisServer, proxy: Proxy, number: signal.Signals, answers: int
) -> None:
    proxy.delay_answers(LATENCY)
    run = start(lab, server)
    before = proxy.answered
    wait_until(lambda: proxy.answered >= before + answers)  # the moment
    run.send_signal(number)
    signalled = time.monotonic()
    out, err = run.communicate(timeout=10)
    assert (run.returncode, out, err) == (-number, b"", b"")
    wait_until(lambda: server.command("EXISTS", "lock:job") == 0, 3 * LATENCY + 0.5 - (time.monotonic() - signalled))
    assert marks(server) == 0, "what was not started closes no window"


def test_asked_often_enough(lab: Lab, server: RedisServer) -> None:
    """Without a latency, at any moment: started and ended, or not started, and free either way."""
    let_start = start(lab, server)
    assert let_start.stdout
    assert let_start.stdout.readline() == b"started\n", "what is asked at the right moment is not the reason below"
    let_start.terminate()
    let_start.communicate(timeout=10)
    started = 0
    for attempt in range(40):
        server.command("DEL", "distlock:{lock:job}:marks")
        run = start(lab, server)
        time.sleep(attempt / 40 * 0.02)
        run.terminate()
        out, err = run.communicate(timeout=10)
        assert (run.returncode, err) == (-signal.SIGTERM, b"")
        assert server.command("EXISTS", "lock:job") == 0
        started += out == b"started\n"
    assert started < 40


class _Hanging:
    """A lease file that the disk does not take."""

    def settle(self, timeout: float) -> bool:
        time.sleep(timeout)
        return False


@pytest.mark.parametrize("how", ["release", "end"])
def test_a_state_directory_that_hangs_is_not_waited_for_then(how: str) -> None:
    of_supervisor, of_renewer = channels()
    if how == "release":
        of_supervisor.send(Message(Kind.RELEASE, -1))
    else:
        of_supervisor.close()
    before = time.monotonic()
    await_lease_file(cast(KeptLeaseFile, _Hanging()), 10.0, of_renewer)
    assert time.monotonic() - before < 1.0
    of_renewer.close()
    if how == "release":
        assert [message.kind for message in of_supervisor.receive()] == [Kind.HELD]
        of_supervisor.close()
