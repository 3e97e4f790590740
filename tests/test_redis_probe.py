"""What a Redis says when it is asked whether it is fit to keep locks: each finding on a server that has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import redis_fixtures
from contenders import environment
from distlock.backends import open_backend
from distlock.backends.base import Unavailable
from distlock.backends.probe import Finding, Probe
from processes import wait_until
from redis_fixtures import opened
from redis_groups import cluster, independent, redlock_url, watched
from servers import HOST, RedisServer

server = redis_fixtures.server
backend = redis_fixtures.backend

SOUND = ("--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")


@pytest.fixture
def sound(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "sound", SOUND).running() as one:
        yield one


def probe(url: str, timeout: float = 5.0) -> Probe:
    backend = open_backend(url, environment())
    try:
        return backend.probe(timeout)
    finally:
        backend.close()


def finding(found: Probe, evidence: str) -> Finding:
    """The one that shows this."""
    (one,) = [one for one in found.findings if evidence in one.evidence]
    return one


def test_a_sound_server(sound: RedisServer) -> None:
    found = probe(sound.url)
    assert found.findings == ()
    assert found.server == f"Redis {sound.command('INFO', 'server')['redis_version']}, master"
    assert found.clock_offset is not None
    assert abs(found.clock_offset) < 0.5
    assert (found.longest_ttl, found.shortest_ttl) == (None, None)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_eviction(sound: RedisServer, policy: str) -> None:
    sound.command("CONFIG", "SET", "maxmemory-policy", policy)
    found = probe(sound.url)
    assert "As soon as" in finding(found, f"maxmemory-policy {policy}, maxmemory 0").meaning
    sound.command("CONFIG", "SET", "maxmemory", 10**9)
    (one,) = probe(sound.url).findings
    assert one.evidence == f"maxmemory-policy {policy}, maxmemory 1000000000"
    assert "granted twice" in one.meaning
    assert one.remedy == "Set maxmemory-policy noeviction."


@pytest.mark.parametrize(
    ("settings", "evidence", "meaning"),
    [
        ({"appendonly": "no", "save": ""}, 'appendonly no, save ""', "After a restart all locks are forgotten"),
        ({"appendonly": "no", "save": "60 1"}, 'appendonly no, save "60 1"', "since the last snapshot"),
        ({"appendfsync": "no"}, "appendfsync no", "half a minute"),
    ],
)
def test_no_persistence(sound: RedisServer, settings: dict[str, str], evidence: str, meaning: str) -> None:
    for name, value in settings.items():
        sound.command("CONFIG", "SET", name, value)
    (one,) = probe(sound.url).findings
    assert one.evidence == evidence
    assert meaning in one.meaning


def test_a_second_may_be_lost_where_money_is_all_that_it_costs(sound: RedisServer) -> None:
    sound.command("CONFIG", "SET", "appendfsync", "everysec")
    assert probe(sound.url).findings == ()


def test_a_disk_that_takes_nothing(sound: RedisServer, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    sound.command("CONFIG", "SET", "dir", str(gone))
    gone.rmdir()
    sound.command("BGSAVE")
    wait_until(lambda: sound.command("INFO", "persistence")["rdb_last_bgsave_status"] == "err")
    one = finding(probe(sound.url), "rdb_last_bgsave_status err")
    assert "takes no writes" in one.meaning


def test_replicas(sound: RedisServer, tmp_path: Path) -> None:
    with RedisServer(tmp_path / "replica", (*SOUND, "--repl-diskless-sync-delay", "0")).running() as replica:
        replica.command("REPLICAOF", HOST, sound.port)
        wait_until(lambda: sound.command("INFO", "replication")["connected_slaves"] == 1)
        (one,) = probe(sound.url).findings
        assert one.evidence == "connected_slaves 1, min-replicas-to-write 0"
        assert "second time" in one.meaning
        found = probe(replica.url)
        assert found.server.endswith(", replica")
        assert "takes no writes" in finding(found, f"role slave of {HOST}:{sound.port}").meaning


@pytest.mark.parametrize(
    ("rights", "hidden"),
    [
        (("+@all", "-config"), ["CONFIG GET"]),
        (("+@all", "-info"), ["INFO"]),
        (("+time",), ["INFO", "CONFIG GET"]),
    ],
)
def test_what_the_user_may_not_see(server: RedisServer, rights: tuple[str, ...], hidden: list[str]) -> None:
    """Is told, and nothing is guessed."""
    server.command("ACL", "SETUSER", "low", "on", ">pw", "~*", "&*", "-@all", *rights)
    found = probe(f"redis://low:pw@{server.place}")
    unseen = [one for one in found.findings if "could not be looked at" in one.meaning]
    assert [one.meaning.split(" shows")[0].removeprefix("What ") for one in unseen] == hidden
    for one in unseen:
        assert "does not allow it" in one.evidence
        assert one.remedy.startswith("Allow this user +")
    assert found.server.startswith("Redis ")


def test_a_server_that_does_not_answer(server: RedisServer) -> None:
    with opened(server.url) as backend:
        server.freeze()
        with pytest.raises(Unavailable, match="does not answer"):
            backend.probe(0.5)
        server.thaw()


# -- groups ------------------------------------------------------------------------------------------------------------


def test_sentinels(tmp_path: Path) -> None:
    with watched(tmp_path / "group", options=SOUND) as group:
        found = probe(group.url)
        assert f"master {group.master().place} of 'mymaster', named by 3 sentinels" in found.server
        assert finding(found, "connected_slaves 1").meaning.startswith("A failover can grant a lock a second time")
        assert len(found.findings) == 1
        group.sentinels[2].kill()
        found = probe(group.url)
        assert "A sentinel is down" in finding(found, f"{group.sentinels[2].place} is not reached").meaning
        group.sentinels[1].kill()
        wait_until(lambda: any("too few sentinels" in one.meaning for one in probe(group.url).findings), 15)
        group.replicas()[0].kill()
        wait_until(lambda: any("no replica" in one.meaning for one in probe(group.url).findings), 15)


def test_sentinels_that_tell_little(tmp_path: Path) -> None:
    user = "user low on >pw ~* &* -@all +sentinel|get-master-addr-by-name"
    with watched(tmp_path / "group", sentinels=1, settings=(user,)) as group:
        found = probe(f"{group.url}?sentinel_user=low&sentinel_password=pw")
        unseen = [one for one in found.findings if "could not be looked at" in one.meaning]
        assert [one.remedy for one in unseen] == ["Allow the user of the sentinels +sentinel."]


def test_a_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", replicas=1, node_timeout=1.0, options=SOUND) as group:
        found = probe(group.url)
        assert found.server.endswith("cluster of 3 masters")
        shown = finding(found, "connected_slaves 1").evidence
        assert all(f"{master.place}: connected_slaves 1" in shown for master in group.masters)
        assert len(found.findings) == 1
        group.replicas[0].kill()
        wait_until(lambda: down(group.url, group.replicas[0].place), 15)
        group.masters[0].kill()
        wait_until(lambda: down(group.url, group.masters[0].place), 15)


def down(url: str, place: str) -> bool:
    """Whether a probe says so: by the word of a node, or by the silence of the one."""
    found = probe(url).findings
    return any("are down" in one.meaning and place in one.evidence and place in one.remedy for one in found)


def test_a_cluster_that_lacks_slots(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", options=SOUND) as group:
        for node in group.masters:
            node.command("CLUSTER", "DELSLOTS", 5)
        found = probe(group.url)
        assert "slots have no node" in finding(found, "cluster_slots_assigned 16383 of 16384").meaning


def test_independent_servers(tmp_path: Path) -> None:
    with independent(tmp_path / "nodes") as nodes:
        found = probe(redlock_url(nodes))
        assert found.server.endswith("3 of 3 independent servers")
        (one,) = found.findings
        assert one.evidence.count('appendonly no, save ""') == 3
        for node in nodes:
            node.command("CONFIG", "SET", "appendonly", "yes")
            node.command("CONFIG", "SET", "appendfsync", "everysec")
        (one,) = probe(redlock_url(nodes)).findings
        assert one.evidence.count("appendfsync everysec") == 3
        for node in nodes:
            node.command("CONFIG", "SET", "appendfsync", "always")
        assert probe(redlock_url(nodes)).findings == ()
        nodes[0].kill()
        (one,) = probe(redlock_url(nodes)).findings
        assert f"{nodes[0].place} is not reached" in one.evidence
        nodes[1].kill()
        with pytest.raises(Unavailable, match="only 1 of 3"):
            probe(redlock_url(nodes))


def test_one_server_that_is_named_twice(tmp_path: Path) -> None:
    with independent(tmp_path / "nodes", 2) as nodes:
        found = probe(f"{redlock_url(nodes)},localhost:{nodes[0].port}")
        one = finding(found, f"{HOST}:{nodes[0].port} and localhost:{nodes[0].port}")
        assert "two votes" in one.meaning
