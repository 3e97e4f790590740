"""A lease on ZooKeeper under everything that can happen to a server, an ensemble and a network. Always: the last stamp
of the old holder's child comes before the grant to anybody else, but where the node was removed by somebody."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from contenders import take, try_once
from contending import Contender
from distlock.backends.base import Grant, Mark, Unavailable
from distlock.backends.zookeeper import ZooKeeperBackend
from distlock.clock import boottime
from margins import Margin
from processes import Lab, Stamps, is_alive, wait_until
from proxy import Proxy
from servers import HOST
from zookeeper_fixtures import crowd, data, folder, opened, queue
from zookeeper_servers import ZooKeeperServer, ensemble, kazoo, url_of

pytestmark = pytest.mark.faults

TTL = 3.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path / "zookeeper").running() as one:
        yield one


@pytest.fixture
def lab(tmp_path: Path, server: ZooKeeperServer) -> Iterator[Lab]:
    made = Lab(tmp_path, server.url)
    yield made
    made.close()


@pytest.fixture
def proxy(server: ZooKeeperServer) -> Iterator[Proxy]:
    with Proxy(server.port) as one:
        yield one


def stamping(lab: Lab, mode: str = "plain", *options: str, backend: str = "") -> tuple[subprocess.Popen[bytes], Stamps]:
    command, stamps = lab.stamper(mode)
    run = lab.start("-b", backend or lab.backend, "--ttl", str(TTL), *options, "job", "--", *command)
    stamps.writer()
    return run, stamps


def contender(lab: Lab) -> Contender:
    return Contender(lab.backend, "job", lab.folder)


def goes_on(stamps: Stamps, other: Contender, seconds: float) -> None:
    until = boottime() + seconds
    while boottime() < until:
        assert stamps.go_on()
        assert other.grant is None


def ended(run: subprocess.Popen[bytes], stamps: Stamps, seconds: float = TTL + 5) -> str:
    """The line of a run that lost its lease."""
    _, stderr = run.communicate(timeout=seconds)
    assert run.returncode == 76
    assert not is_alive(stamps.writer())
    text = stderr.decode()
    assert text.startswith("distlock: 'job': lease lost: ")
    assert text.endswith("; COMMAND was stopped\n")
    assert text.count("\n") == 1
    return text


# --- one server -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
def test_a_node_removed_by_somebody(lab: Lab, server: ZooKeeperServer, mode: str) -> None:
    """It is told at once, and not at the next renewal: TERM at once, everything dead after the grace."""
    run, stamps = stamping(lab, mode, "--ttl", "30", "-k", "1")
    with kazoo(server) as zk:
        zk.delete(queue(zk, "job")[0])
    lost = boottime()
    assert "its node was removed" in ended(run, stamps)
    assert stamps.last() - lost < 1.0 + 0.7


def test_a_session_ended_by_somebody(lab: Lab, server: ZooKeeperServer) -> None:
    """Taken up and closed by another client, which what the node says lets do that."""
    run, stamps = stamping(lab, "plain", "--ttl", "30", "-k", "1")
    with kazoo(server) as zk:
        (path,) = queue(zk, "job")
        stat = zk.exists(path)
        assert stat
        session = stat.ephemeralOwner, bytes.fromhex(data(zk, path)["session"])
    thief = KazooClient(server.place, timeout=30.0, client_id=session)
    thief.start(10)
    thief.stop()
    thief.close()
    lost = boottime()
    assert "its session has ended" in ended(run, stamps)
    assert stamps.last() - lost < 1.0 + 0.7


def test_a_session_that_the_server_ends(lab: Lab, proxy: Proxy, margin: Margin) -> None:
    """It hears nothing for the session's time-out; the way is open again just when it has ended."""
    run, stamps = stamping(lab, "deaf", backend=f"zookeeper://{HOST}:{proxy.port}")
    with contender(lab) as other:
        proxy.black_hole()
        granted = other.wait(TTL + 3)
        proxy.let_pass()
        ended(run, stamps)
    margin(stamps.last(), granted)


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
def test_a_frozen_server(lab: Lab, server: ZooKeeperServer, mode: str, margin: Margin) -> None:
    """It counts on while it is frozen, and ends the session when it is thawed."""
    run, stamps = stamping(lab, mode)
    frozen = boottime()
    server.freeze()
    assert "could not be renewed in time" in ended(run, stamps)
    assert stamps.last() < frozen + TTL
    server.thaw()
    with contender(lab) as other:
        margin(stamps.last(), other.wait(TTL + 2))


def test_a_server_that_stalls_for_less_than_the_lease(lab: Lab, server: ZooKeeperServer, margin: Margin) -> None:
    run, stamps = stamping(lab, "plain", "--ttl", "9")
    with contender(lab) as other:
        server.freeze()
        stamps.keep_coming(3)  # the stall
        server.thaw()
        goes_on(stamps, other, 4)
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        margin(stamps.last(), other.wait(2))


def test_a_restart_is_survived(lab: Lab, server: ZooKeeperServer, margin: Margin) -> None:
    run, stamps = stamping(lab, "plain", "--ttl", "6")
    with contender(lab) as other:
        server.restart()
        goes_on(stamps, other, 6)
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        margin(stamps.last(), other.wait(2))


def test_a_server_that_does_not_come_back(lab: Lab, server: ZooKeeperServer, margin: Margin) -> None:
    """Until it does, long after."""
    run, stamps = stamping(lab, "deaf")
    token = _token(server)
    server.kill()
    ended(run, stamps)
    server.start()
    with contender(lab) as other:
        margin(stamps.last(), other.wait(TTL + 2))
        assert other.grant
        assert (other.grant.token or 0) > token


def _token(server: ZooKeeperServer) -> int:
    with kazoo(server) as zk:
        stat = zk.exists(queue(zk, "job")[0])
        assert stat
        return int(stat.czxid)


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_server_that_is_gone_at_the_release(lab: Lab, server: ZooKeeperServer, how: str) -> None:
    """The command has done its work: its code stands, and one line says that the lock was not given back."""
    script = "echo started; while test -e job; do sleep 0.01; done; exit 7"
    (lab.folder / "job").touch()
    run = lab.start("--ttl", "30", "job", "--", "sh", "-c", script)
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


def test_kill_9_of_the_wrapper(lab: Lab, margin: Margin) -> None:
    run, stamps = stamping(lab, "deaf daemon", "--ttl", "60")
    with contender(lab) as other:
        killed = boottime()
        run.kill()
        granted = other.wait(5)
    margin(stamps.last(), granted)
    assert granted - killed < 1.0


# --- the network ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["plain", "deaf daemon"])
@pytest.mark.parametrize("how", ["black hole", "refused"])
def test_a_network_that_is_cut(lab: Lab, proxy: Proxy, how: str, mode: str, margin: Margin) -> None:
    run, stamps = stamping(lab, mode, backend=f"zookeeper://{HOST}:{proxy.port}")
    with contender(lab) as other:
        if how == "refused":
            proxy.refuse()
        else:
            proxy.black_hole()
        granted = other.wait(TTL + 3)
        ended(run, stamps)
    margin(stamps.last(), granted)


@pytest.mark.parametrize("of_ttl", [0.05, 0.5])
def test_answers_that_come_late_and_then_none(lab: Lab, proxy: Proxy, of_ttl: float, margin: Margin) -> None:
    """What counts is when the session was asked for, before its answer came. A renewal is two answers."""
    run, stamps = stamping(lab, "deaf", backend=f"zookeeper://{HOST}:{proxy.port}")
    with contender(lab) as other:
        proxy.delay_answers(of_ttl * TTL)
        if of_ttl < 0.1:
            goes_on(stamps, other, 2 * TTL)
        proxy.black_hole()
        granted = other.wait(TTL + 3)
        ended(run, stamps)
    margin(stamps.last(), granted)


def test_a_short_cut_is_survived(lab: Lab, proxy: Proxy) -> None:
    run, stamps = stamping(lab, "plain", "--ttl", "6", backend=f"zookeeper://{HOST}:{proxy.port}")
    for cut in (proxy.refuse, proxy.black_hole):
        cut()
        assert stamps.go_on()
        stamps.keep_coming(0.5)  # the cut
        proxy.let_pass()
        until = boottime() + TTL
        while boottime() < until:
            assert stamps.go_on()
    run.terminate()
    assert run.wait(5) == -signal.SIGTERM


def test_a_waiter_cut_off_starts_nothing(lab: Lab, server: ZooKeeperServer, proxy: Proxy) -> None:
    holder = lab.start("job", "--", "sh", "-c", "echo started; exec sleep 60")
    assert holder.stdout
    assert holder.stdout.readline() == b"started\n"
    mark = lab.folder / "mark"
    waiter = lab.start("-b", f"zookeeper://{HOST}:{proxy.port}", "-w", "8", "job", "--", "touch", str(mark))
    with kazoo(server) as zk:
        wait_until(lambda: len(queue(zk, "job")) == 2)
    proxy.black_hole()
    holder.terminate()
    # Its node is in the way for as long as it may be alive.
    assert lab.run("-w", "7", "job", "--", "true").returncode == 0
    assert waiter.wait(15) == 69
    assert not mark.exists()


# --- kazoo's own Lock -------------------------------------------------------------------------------------------------


def test_kazoos_lock_excludes_a_run_and_is_excluded(lab: Lab, server: ZooKeeperServer, margin: Margin) -> None:
    run, stamps = stamping(lab)
    with kazoo(server) as zk:
        lock = zk.Lock(folder("job"))
        had: list[float] = []

        def wait() -> None:
            lock.acquire()
            had.append(boottime())

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: len(queue(zk, "job")) == 2)
        until = boottime() + 2 * TTL
        while boottime() < until:
            assert stamps.go_on()
            assert not had
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        thread.join(5)
        margin(stamps.last(), had[0])
        busy = lab.run("-v", "-n", "job", "--", "true")
        assert busy.returncode == 75
        assert b"held by somebody unknown" in busy.stderr
        waiting = lab.start("-w", "10", "job", "--", "echo", "ran")
        wait_until(lambda: len(queue(zk, "job")) == 2)
        lock.release()
        out, _ = waiting.communicate(timeout=10)
        assert (waiting.returncode, out) == (0, b"ran\n")


# --- an ensemble ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ZooKeeperServer]]:
    with ensemble(tmp_path_factory.mktemp("ensemble")) as servers:
        yield servers


@pytest.fixture
def fleet(tmp_path: Path, three: list[ZooKeeperServer]) -> Iterator[Lab]:
    for server in three:
        if server.process is None or server.process.poll() is not None:
            server.start(ready=False)
    for server in three:
        server.wait()
    made = Lab(tmp_path, url_of(three))
    yield made
    made.close()


def leader(servers: list[ZooKeeperServer]) -> ZooKeeperServer:
    return next(server for server in servers if server.mode == "leader")


def test_what_one_server_has_answered_is_known_at_the_others(fleet: Lab, three: list[ZooKeeperServer]) -> None:
    """A follower hears of it a little later. Marks, fence registers, and a lease that another process takes over."""
    del fleet  # it saw to it that all are up
    for at, later in permutations(three, 2):
        with opened(at.url) as one, opened(later.url) as other:
            for step in range(10):
                name = f"known {at.port} {later.port} {step}"
                grant = take(one, name)
                assert other.inspect(name, 5.0).token == grant.token
                other.renew(grant, 5.0)
                slot = str(step)
                one.mark(grant, Mark(slot, 0.0, 60.0), 5.0)
                assert other.marked(name, slot, 5.0)
                assert one.advance_fence("disk", 0, grant.token or 0, 5.0) == grant.token
                assert other.advance_fence("disk", 0, 0, 5.0) == grant.token
                assert other.revoke(name, grant.token, None, "me", 5.0, now=True)


def test_several_holders_that_ask_different_servers(fleet: Lab, three: list[ZooKeeperServer]) -> None:
    """A follower knows of the others a little later."""
    del fleet  # it saw to it that all are up
    crowd([server.url for server in three], "crowd")


def test_several_holders_when_the_leader_is_lost(fleet: Lab, three: list[ZooKeeperServer]) -> None:
    del fleet
    old = leader(three)
    with opened(url_of(three)) as one, opened(url_of(three)) as other:
        grants = [take(one, "several", holders=3) for _ in range(3)]
        old.kill()
        until = boottime() + 10
        for grant in grants:
            wait_until(partial(renewed, one, grant), until - boottime())
        assert try_once(other, "several", holders=3) is None
        one.release(grants[1], 5.0)
        later = take(other, "several", holders=3)
        assert later.holder_index == grants[1].holder_index
        assert (later.token or 0) > max(grant.token or 0 for grant in grants)


def renewed(backend: ZooKeeperBackend, grant: Grant) -> bool:
    try:
        return backend.renew(grant, 2.0).holder_index == grant.holder_index
    except Unavailable:
        return False


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_an_ensemble_that_loses_its_leader(fleet: Lab, three: list[ZooKeeperServer], how: str, margin: Margin) -> None:
    """The job goes on, and nobody else gets in; nor does anybody when the old leader comes back."""
    run, stamps = stamping(fleet, "plain", "--ttl", "12")
    old = leader(three)
    with contender(fleet) as other:
        if how == "killed":
            old.kill()
        else:
            old.freeze()
        goes_on(stamps, other, 9)
        if how == "frozen":
            old.thaw()
        else:
            old.start(ready=False)
        goes_on(stamps, other, 4)
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        margin(stamps.last(), other.wait(5))


def test_an_ensemble_that_loses_its_quorum(fleet: Lab, three: list[ZooKeeperServer], margin: Margin) -> None:
    """Nobody can renew, so the command ends in time; tokens grow on afterwards."""
    run, stamps = stamping(fleet, "deaf", "--ttl", "5")
    began = boottime()
    lost = [server for server in three if server.mode == "follower"][:2]
    for server in lost:
        server.kill()
    ended(run, stamps, 15)
    assert stamps.last() < began + 5 + 1
    refused = fleet.run("-w", "1", "job", "--", "true")
    assert refused.returncode == 69
    assert refused.stderr.count(b"\n") == 1
    for server in lost:
        server.start(ready=False)
    with contender(fleet) as other:
        margin(stamps.last(), other.wait(20))


def test_a_holder_cut_off_with_its_follower(fleet: Lab, three: list[ZooKeeperServer], margin: Margin) -> None:
    """Its server hears nothing from the others any more, and answers on for a while. Who is with the others gets the
    lock only when the command is dead."""
    follower = next(server for server in three if server.mode == "follower")
    run, stamps = stamping(fleet, "deaf", "--ttl", "5", backend=follower.url)
    rest = [server for server in three if server is not follower]
    with Contender(url_of(rest), "job", fleet.folder) as other:
        follower.freeze()
        granted = other.wait(12)
        ended(run, stamps)
        follower.thaw()
    margin(stamps.last(), granted)


def test_a_follower_that_is_left_alone(fleet: Lab, three: list[ZooKeeperServer], margin: Margin) -> None:
    """It answers on until it has noticed; what it answers is worth nothing. The leader, which was frozen, counts from
    what it had heard before."""
    follower = next(server for server in three if server.mode == "follower")
    run, stamps = stamping(fleet, "deaf", "--ttl", "5", backend=follower.url)
    rest = [server for server in three if server is not follower]
    for server in rest:
        server.freeze()
    frozen = boottime()
    ended(run, stamps, 15)
    assert stamps.last() < frozen + 5
    for server in rest:
        server.thaw()
    with contender(fleet) as other:
        margin(stamps.last(), other.wait(20))
