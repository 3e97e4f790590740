"""A lease at a majority of independent Redis, while some or most of them fail."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from contending import Contender
from distlock.clock import boottime
from distlock.deadline import default_grace
from margins import Margin
from processes import Lab, Stamps, is_alive, wait_until
from proxy import Proxy
from redis_groups import independent, redlock_url
from servers import HOST, RedisServer

pytestmark = pytest.mark.faults

TTL = 3.0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[RedisServer]]:
    with independent(tmp_path / "redis") as some:
        yield some


@pytest.fixture
def proxies(nodes: list[RedisServer]) -> Iterator[list[Proxy]]:
    """The holder's way to the servers; contenders take another."""
    with ExitStack() as stack:
        yield [stack.enter_context(Proxy(node.port)) for node in nodes]


@pytest.fixture
def lab(tmp_path: Path, nodes: list[RedisServer]) -> Iterator[Lab]:
    made = Lab(tmp_path, redlock_url(nodes))
    yield made
    made.close()


def stamping(
    lab: Lab, proxies: list[Proxy], mode: str = "plain", ttl: float = TTL
) -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(mode)
    url = "redlock://" + ",".join(f"{HOST}:{proxy.port}" for proxy in proxies)
    run = lab.start("-b", url, "--ttl", str(ttl), "job", "--", *command)
    stamps.writer()
    return run, stamps


def hurt(how: str, node: RedisServer, proxy: Proxy) -> None:
    {"killed": node.kill, "frozen": node.freeze, "cut": proxy.black_hole, "refused": proxy.refuse}[how]()


@pytest.mark.parametrize("how", ["killed", "frozen", "cut", "refused"])
def test_a_minority_that_fails(
    lab: Lab, nodes: list[RedisServer], proxies: list[Proxy], how: str, margin: Margin
) -> None:
    """The lease goes on, nobody else gets it, and it is given back as usual."""
    run, stamps = stamping(lab, proxies)
    hurt(how, nodes[1], proxies[1])
    with Contender(lab.backend, "job", lab.folder) as other:
        until = boottime() + 2 * TTL
        while boottime() < until:
            assert stamps.go_on()
            assert other.grant is None
        ended = boottime()
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        assert boottime() - ended < 1.5
        margin(stamps.last(), other.wait(3))
    assert run.stderr
    assert run.stderr.read() == b""


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
@pytest.mark.parametrize("how", ["cut", "refused"])
def test_a_majority_that_is_cut_off(
    lab: Lab, nodes: list[RedisServer], proxies: list[Proxy], how: str, mode: str, margin: Margin
) -> None:
    """The command is dead before a majority could grant it to somebody else."""
    run, stamps = stamping(lab, proxies, mode)
    with Contender(lab.backend, "job", lab.folder) as other:
        for node, proxy in zip(nodes[:2], proxies[:2], strict=True):
            hurt(how, node, proxy)
        granted = other.wait(2 * TTL)
        _, stderr = run.communicate(timeout=TTL + 5)
    assert run.returncode == 76
    assert b"could not be renewed in time" in stderr
    margin(stamps.last(), granted)
    assert not is_alive(stamps.writer())


def test_a_majority_that_freezes(lab: Lab, nodes: list[RedisServer], proxies: list[Proxy], margin: Margin) -> None:
    run, stamps = stamping(lab, proxies, "deaf")
    ends = boottime() + min(node.command("PTTL", "lock:job") for node in nodes) / 1000
    for node in nodes[:2]:
        node.freeze()
    _, stderr = run.communicate(timeout=TTL + 5)
    assert run.returncode == 76
    assert b"only 1 of 3 servers of the redlock can be counted on" in stderr
    margin(stamps.last(), ends)
    for node in nodes[:2]:
        node.thaw()
    assert lab.run("-w", "10", "job", "--", "true").returncode == 0


def test_answers_that_come_late(lab: Lab, proxies: list[Proxy], margin: Margin) -> None:
    """What counts is when the first of a majority was asked."""
    run, stamps = stamping(lab, proxies, "deaf")
    with Contender(lab.backend, "job", lab.folder) as other:
        for proxy in proxies:
            proxy.delay_answers(0.14 * TTL)
        until = boottime() + 2 * TTL
        while boottime() < until:
            assert stamps.go_on()
        for proxy in proxies:
            proxy.black_hole()
        granted = other.wait(TTL + 3)
    margin(stamps.last(), granted)
    assert run.wait(5) == 76


def test_a_restart_without_the_data_that_grants_twice(lab: Lab, nodes: list[RedisServer], proxies: list[Proxy]) -> None:
    """A lease at two of three, and one of these forgets it before the third is given it: two run until the first one's
    next renewal. A server that stays away for the longest TTL after such a restart prevents it."""
    ttl = 9.0
    proxies[2].refuse()
    run, stamps = stamping(lab, proxies, ttl=ttl)
    nodes[0].restart()
    with Contender(lab.backend, "job", lab.folder) as other:
        granted = other.wait(ttl / 3)
        assert is_alive(stamps.writer())
        proxies[2].let_pass()
        _, stderr = run.communicate(timeout=ttl)
    assert run.returncode == 76
    assert b"lease lost: at most of its servers it" in stderr
    assert granted < stamps.last() < granted + ttl / 3 + default_grace(ttl) + 0.5


def test_kill_9_of_the_wrapper(lab: Lab, proxies: list[Proxy], margin: Margin) -> None:
    run, stamps = stamping(lab, proxies, "deaf daemon", ttl=60.0)
    with Contender(lab.backend, "job", lab.folder) as other:
        killed = boottime()
        run.kill()
        granted = other.wait(5)
    margin(stamps.last(), granted)
    assert granted - killed < 1.5


def test_a_signal_while_waiting(lab: Lab, nodes: list[RedisServer], proxies: list[Proxy]) -> None:
    stamping(lab, proxies, ttl=60.0)
    waiter = lab.start("job", "--", "true")
    wait_until(lambda: all(node.command("ZCARD", "distlock:{lock:job}:queue") == 1 for node in nodes))
    nodes[1].freeze()
    start = boottime()
    waiter.terminate()
    assert waiter.wait(5) == -signal.SIGTERM
    assert boottime() - start < 1.0
    nodes[1].thaw()
    for node in nodes:
        wait_until(lambda: node.command("EXISTS", "distlock:{lock:job}:queue") == 0, 11)  # noqa: B023
