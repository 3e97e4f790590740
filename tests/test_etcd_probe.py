"""What is found of an etcd that is not fit to keep locks, each on one that is not."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock.backends.base import Refused, Unavailable
from distlock.backends.etcd_probe import known_trouble
from distlock.backends.probe import Finding, Probe
from distlock.clock import boottime
from etcd_fixtures import nothing_left, opened, served
from etcd_servers import EtcdCluster, EtcdMember
from processes import wait_until


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    yield from served(tmp_path_factory.mktemp("etcd"))


def probed(url: str) -> Probe:
    with opened(url) as backend:
        start = boottime()
        found = backend.probe(5.0)
        assert boottime() - start < 6.0
        return found


def found(probe: Probe, words: str) -> Finding | None:
    return next((one for one in probe.findings if words in one.meaning), None)


def version() -> str:
    return subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]


def test_a_single_server(alone: EtcdMember) -> None:
    probe = probed(alone.url)
    assert probe.server == f"etcd {version()}, a single member"
    assert found(probe, "no failover")
    assert not found(probe, "endpoint")
    assert (probe.clock_offset, probe.shortest_ttl, probe.longest_ttl) == (None, 1.0, 9e9)
    assert nothing_left(alone)


def test_the_version(alone: EtcdMember) -> None:
    """Debian's has a known bug, or a later one does not."""
    trouble = known_trouble(version())
    assert bool(found(probed(alone.url), "frozen")) == bool(trouble)


@pytest.mark.parametrize(
    ("numbers", "troubles"),
    [
        ("3.3.25", 1),
        ("3.4.30", 1),
        ("3.4.31", 0),
        ("3.5.2", 2),
        ("3.5.12", 1),
        ("3.5.13", 0),
        ("3.6.0-rc.1", 0),
        ("4", 0),
    ],
)
def test_versions_with_known_trouble(numbers: str, troubles: int) -> None:
    assert len(known_trouble(numbers)) == troubles


def test_a_full_server(tmp_path: Path) -> None:
    with EtcdMember(tmp_path / "full", options=("--quota-backend-bytes", str(1 << 20))).running() as full:
        assert not found(probed(full.url), "full")
        big = "x" * 100_000
        for number in range(100):
            full.ctl("put", f"/x/{number}", big, check=False)
            if "NOSPACE" in full.ctl("alarm", "list"):
                break
        finding = found(probed(full.url), "full")
        assert finding is not None
        assert "NOSPACE" in finding.evidence


def test_a_server_that_is_away_and_one_that_refuses_us(tmp_path: Path) -> None:
    member = EtcdMember(tmp_path / "one")
    with opened(member.url) as backend, pytest.raises(Unavailable, match="not reached"):
        backend.probe(5.0)
    with member.running():
        for words in ("user add root:secret", "user grant-role root root", "auth enable"):
            member.ctl(*words.split())
        with opened(f"etcd://root:wrong@{member.place}") as backend, pytest.raises(Refused):
            backend.probe(5.0)
        assert found(probed(f"etcd://root:secret@{member.place}"), "no failover")


def test_members_of_a_cluster(tmp_path: Path, alone: EtcdMember) -> None:
    with EtcdCluster.of(tmp_path / "cluster").running() as cluster:
        probe = probed(cluster.url)
        assert probe.server == f"etcd {version()}, 3 members, led by {cluster.leader().place}"
        assert not found(probe, "endpoint")
        assert not found(probe, "no failover")
        assert not found(probe, "leader to")
        assert found(probed(cluster.members[0].url), "one member of several")

        strangers = probed(f"{cluster.url},{alone.place}")
        assert found(strangers, "different clusters")

        first, second, third = cluster.members
        first.kill()
        wait_until(lambda: second.is_healthy() and third.is_healthy(), 20)
        finding = found(probed(cluster.url), "does not serve")
        assert finding is not None
        assert first.place in finding.evidence
        first.restart()

        first.freeze()
        wait_until(lambda: second.is_healthy() and third.is_healthy(), 20)
        finding = found(probed(cluster.url), "does not serve")
        assert finding is not None
        assert first.place in finding.evidence
        first.thaw()

        for member in (first, second):
            member.kill()
        wait_until(lambda: third.tells("etcd_server_has_leader") == 0, 20)
        probe = probed(cluster.url)
        finding = found(probe, "without a leader")
        assert finding is not None
        assert third.place in finding.evidence
        assert probe.shortest_ttl is None
