"""A lease on etcd under everything that can happen to a cluster and a network. Always: the last stamp of the old
holder's child comes before the grant to anybody else, but where the lock was taken away behind etcd's back."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from contending import Contender
from distlock.backends.base import Unavailable
from distlock.clock import boottime
from etcd_fixtures import etcdctl_lock, nothing_left, only_records, queue_of, record_of
from etcd_servers import EtcdCluster, EtcdMember
from processes import Lab, Stamps, is_alive, renewer_of, wait_until
from proxy import Proxy

pytestmark = pytest.mark.faults

TTL = 4.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EtcdMember]:
    with EtcdMember(tmp_path / "etcd").running() as one:
        yield one


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster.of(tmp_path / "cluster").running() as one:
        yield one


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, "")
    yield made
    made.close()


def stamping(lab: Lab, url: str, mode: str = "plain", *options: str) -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(mode)
    run = lab.start("-b", url, "--ttl", str(TTL), *options, "job", "--", *command)
    stamps.writer()
    return run, stamps


class _Patient(Contender):
    """Goes on while the cluster has no leader."""

    def _run(self) -> None:
        while not self._stop.is_set() and self.grant is None:
            try:
                super()._run()
            except Unavailable:
                continue


def contender(lab: Lab, url: str) -> Contender:
    return _Patient(url, "job", lab.folder)


def ended(run: subprocess.Popen[bytes], stamps: Stamps) -> str:
    """The line of a run that lost its lease."""
    _, stderr = run.communicate(timeout=TTL + 5)
    assert run.returncode == 76
    assert not is_alive(stamps.writer())
    text = stderr.decode()
    assert text.startswith("distlock: 'job': lease lost: ")
    assert text.endswith("; COMMAND was stopped\n")
    assert text.count("\n") == 1
    return text


def lives(stamps: Stamps) -> None:
    assert is_alive(stamps.writer())
    time.sleep(0.05)


def goes_on(stamps: Stamps, other: Contender, seconds: float) -> None:
    until = boottime() + seconds
    while boottime() < until:
        lives(stamps)
        assert other.grant is None


def ends_well(run: subprocess.Popen[bytes], stamps: Stamps, other: Contender) -> None:
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    assert stamps.last() < other.wait(5)


# -- told at once ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
@pytest.mark.parametrize("how", ["revoked", "deleted", "replaced"])
def test_a_lock_taken_away_by_somebody(lab: Lab, server: EtcdMember, how: str, mode: str) -> None:
    """The watch tells, long before a renewal would: TERM at once, everything dead after the grace."""
    run, stamps = stamping(lab, server.url, mode, "--ttl", "60", "-k", "0.5")
    (key,) = server.keys(queue_of("job"))
    time.sleep(0.3)  # for the watch, which is not what is measured
    if how == "revoked":
        server.ctl("lease", "revoke", server.lease_of(key))
    else:
        server.ctl("del", key)
        if how == "replaced":
            server.ctl("put", key, "thief")
    lost = boottime()
    text = ended(run, stamps)
    assert stamps.last() - lost < 0.5 + 0.5
    assert "revoked" in text or "its key was removed" in text
    if how == "replaced":
        assert server.value(key) == "thief"


# -- one member --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
def test_a_frozen_server(lab: Lab, server: EtcdMember, mode: str) -> None:
    run, stamps = stamping(lab, server.url, mode)
    server.freeze()
    assert "could not be renewed in time" in ended(run, stamps)
    server.thaw()
    with contender(lab, server.url) as other:
        assert stamps.last() < other.wait(TTL + 4)


def test_a_restart_with_the_data(lab: Lab, server: EtcdMember) -> None:
    run, stamps = stamping(lab, server.url)
    server.restart()
    with contender(lab, server.url) as other:
        goes_on(stamps, other, 1.5 * TTL)
        ends_well(run, stamps, other)


def test_a_restart_without_the_data(lab: Lab, server: EtcdMember) -> None:
    run, stamps = stamping(lab, server.url)
    server.restart(keep=False)
    ended(run, stamps)
    assert lab.run("-b", server.url, "job", "--", "true").returncode == 0


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
@pytest.mark.parametrize("how", ["black hole", "refused"])
def test_a_network_that_is_cut(lab: Lab, server: EtcdMember, how: str, mode: str) -> None:
    with Proxy(server.port) as proxy:
        run, stamps = stamping(lab, f"etcd://127.0.0.1:{proxy.port}", mode)
        with contender(lab, server.url) as other:
            if how == "refused":
                proxy.refuse()
            else:
                proxy.black_hole()
            granted = other.wait(TTL + 4)
            ended(run, stamps)
        assert stamps.last() < granted


def test_answers_that_come_late_and_then_none(lab: Lab, server: EtcdMember) -> None:
    """What counts is when a renewal was sent: the server began to count before its answer came."""
    with Proxy(server.port) as proxy:
        run, stamps = stamping(lab, f"etcd://127.0.0.1:{proxy.port}", "deaf")
        with contender(lab, server.url) as other:
            proxy.delay_answers(0.05 * TTL)
            goes_on(stamps, other, 2 * TTL)
            proxy.black_hole()
            granted = other.wait(TTL + 4)
            ended(run, stamps)
        assert stamps.last() < granted


def test_a_short_cut_is_survived(lab: Lab, server: EtcdMember) -> None:
    with Proxy(server.port) as proxy:
        run, stamps = stamping(lab, f"etcd://127.0.0.1:{proxy.port}", "plain", "--ttl", "6")
        for cut in (proxy.refuse, proxy.black_hole):
            cut()
            lives(stamps)
            stamps.keep_coming(0.5)  # the cut
            proxy.let_pass()
            until = boottime() + 4
            while boottime() < until:
                lives(stamps)
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
    assert nothing_left(server, record_of("job"))


def test_kill_9_of_the_wrapper(lab: Lab, server: EtcdMember) -> None:
    run, stamps = stamping(lab, server.url, "deaf daemon", "--ttl", "60")
    with contender(lab, server.url) as other:
        killed = boottime()
        run.kill()
        granted = other.wait(5)
    assert stamps.last() < granted
    assert granted - killed < 1.5


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_renewer_that_is_gone(lab: Lab, server: EtcdMember, how: signal.Signals) -> None:
    run, stamps = stamping(lab, server.url, "deaf daemon")
    with contender(lab, server.url) as other:
        os.kill(renewer_of(run.pid), how)
        granted = other.wait(TTL + 4)
        assert stamps.last() < granted
        assert run.wait(5) == 76


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_server_that_is_gone_at_the_release(lab: Lab, server: EtcdMember, how: str) -> None:
    """The command has done its work: its code stands, and one line says that the lock was not given back."""
    script = "echo started; while test -e job; do sleep 0.01; done; exit 7"
    (lab.folder / "job").touch()
    run = lab.start("-b", server.url, "job", "--", "sh", "-c", script)
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    if how == "killed":
        server.kill()
    else:
        server.freeze()
    (lab.folder / "job").unlink()
    _, stderr = run.communicate(timeout=8)
    assert run.returncode == 7
    assert stderr.decode().count("\n") == 1
    assert server.place in stderr.decode()
    assert stderr.startswith(b"distlock: ")


def test_fifty_contenders_and_some_of_etcdctl(lab: Lab, server: EtcdMember) -> None:
    """A counter without any protection but the lock, and its order in the tokens."""
    counter, log = lab.folder / "counter", lab.folder / "log"
    counter.write_text("0")
    count = f'n=$(cat {counter}); echo $((n + 1)) > {counter}; echo "$DISTLOCK_FENCING_TOKEN" >> {log}'
    with ExitStack() as stack:
        holder = stack.enter_context(etcdctl_lock(server, "/distlock/lock/job"))
        ours = [lab.start("-b", server.url, "job", "--", "sh", "-c", count) for _ in range(50)]
        foreign = [
            stack.enter_context(etcdctl_lock(server, "/distlock/lock/job", "sh", "-c", count, waits=True))
            for _ in range(5)
        ]
        wait_until(lambda: len(server.keys(queue_of("job"))) == 56, 60)
        holder.terminate()
        assert [one.wait(60) for one in ours] == [0] * 50
        assert [one.wait(60) for one in foreign] == [0] * 5
    assert counter.read_text() == "55\n"
    tokens = [int(line) for line in log.read_text().split()]
    assert len(tokens) == 50
    assert tokens == sorted(set(tokens))
    assert only_records(server, "job")


# -- three members -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_the_leader_is_gone(lab: Lab, cluster: EtcdCluster, how: str) -> None:
    """Survived, whichever member the run talks to; the next token is a greater one."""
    run, stamps = stamping(lab, cluster.url, "plain", "--ttl", "6")
    leader = cluster.leader()
    rest = "etcd://" + ",".join(member.place for member in cluster.others(leader))
    with contender(lab, rest) as other:
        if how == "killed":
            leader.kill()
        else:
            leader.freeze()
        goes_on(stamps, other, 12.0)
        token = int(cluster.others(leader)[0].value(record_of("job"))[2:] or 0)
        ends_well(run, stamps, other)
        assert other.grant is not None
        assert other.grant.token is not None
        assert other.grant.token > token


def test_each_member_in_turn_is_restarted(lab: Lab, cluster: EtcdCluster) -> None:
    run, stamps = stamping(lab, cluster.url, "plain", "--ttl", "6")
    for member in cluster.members:
        member.restart()
        lives(stamps)
        cluster.leader()
    until = boottime() + 3
    while boottime() < until:
        lives(stamps)
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_two_of_three_are_gone(lab: Lab, cluster: EtcdCluster, how: str) -> None:
    """No quorum: ended in time; and when they are back, nobody had the lock before."""
    run, stamps = stamping(lab, cluster.url, "deaf daemon")
    gone = [cluster.leader(), cluster.others(cluster.leader())[0]]
    for member in gone:
        if how == "killed":
            member.kill()
        else:
            member.freeze()
    assert "could not be renewed in time" in ended(run, stamps)
    for member in gone:
        if how == "killed":
            member.start(ready=False)
        else:
            member.thaw()
    cluster.leader()
    with contender(lab, cluster.url) as other:
        assert stamps.last() < other.wait(TTL + 8)


def test_a_waiter_outlives_the_leader(lab: Lab, cluster: EtcdCluster) -> None:
    """It may lose its place, not its patience; no lock, no child."""
    run, stamps = stamping(lab, cluster.url, "plain", "--ttl", "6")
    waiter = lab.start("-b", cluster.url, "-w", "60", "job", "--", "sh", "-c", "exit 3")
    member = cluster.members[0]
    wait_until(lambda: len(member.keys(queue_of("job"))) == 2)
    cluster.leader().kill()
    cluster.leader()
    stamps.keep_coming(2)
    assert waiter.poll() is None
    last = boottime()
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM
    assert waiter.wait(15) == 3
    assert stamps.last() >= last - 1
