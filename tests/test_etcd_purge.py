"""Forgetting locks on etcd beyond the contract: many, in the way of others, and how old is known."""

from __future__ import annotations

import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import etcd_fixtures
from contenders import take, try_once
from distlock.backends.base import Mark, Unavailable
from distlock.backends.etcd import EtcdBackend
from distlock.clock import boottime
from etcd_fixtures import opened, record_of, taken_and_given_back
from etcd_servers import EtcdMember
from processes import wait_until

TIMES = "/distlock/token//times"


one_server = etcd_fixtures.one_server
server = etcd_fixtures.emptied_server
backend = etcd_fixtures.backend


def purge(backend: EtcdBackend, unused_for: float = 0.0, *, fences: bool = False) -> list[str]:
    return list(backend.purge(lambda _: True, unused_for, 5.0, fences=fences))


def test_what_is_old_is_known_from_the_purge_before(server: EtcdMember, backend: EtcdBackend) -> None:
    taken_and_given_back(backend, "old")
    assert purge(backend, 1.0) == []  # nobody knows
    noted = boottime()
    taken_and_given_back(backend, "new")
    wait_until(lambda: boottime() > noted + 1.1)
    assert purge(backend, 3600.0) == []
    assert purge(backend, 1.0) == ["old"]
    assert purge(backend, 0.0) == ["new"]
    assert server.keys() == [TIMES]
    server.ctl("put", "/distlock/fence/r/0", "1:7")
    assert purge(backend, 1.0, fences=True) == []
    assert purge(backend, fences=True) == ["r"]


def test_what_is_noted_of_purges_is_bounded(server: EtcdMember, backend: EtcdBackend) -> None:
    """Of a year of one each day, those of lately and a few of each time before."""
    day, now = 86400.0, time.time()
    days = ",".join(f"1:{int((now - one * day) * 1e6)}" for one in range(1, 366))
    server.ctl("put", TIMES, f"1:{days}")
    purge(backend, 400 * day)
    assert 20 < server.value(TIMES).count(",") < 120
    server.ctl("put", TIMES, "7:whatever")
    with pytest.raises(Unavailable, match="layout"):
        purge(backend, day)


def test_marks_of_which_the_time_is_over_go_with_it(server: EtcdMember, backend: EtcdBackend) -> None:
    grant = take(backend, "n")
    backend.mark(grant, Mark("short", 0.0, 1.0), 5.0)
    backend.mark(grant, Mark("long", 0.0, 60.0), 5.0)
    backend.release(grant, 5.0)
    assert purge(backend) == []
    server.ctl("put", "/distlock/mark/n/long", "1:0000000000000002:0000000000000001")
    wait_until(lambda: purge(backend) == ["n"], 10)
    assert server.keys() == [TIMES]


def test_an_unknown_layout_stays_and_hides_no_other(server: EtcdMember, backend: EtcdBackend) -> None:
    for name in ("a", "c"):
        taken_and_given_back(backend, name)
    server.ctl("put", record_of("b"), "9:what")
    gone = backend.purge(lambda _: True, 0.0, 5.0)
    assert [next(gone), next(gone)] == ["a", "c"]
    with pytest.raises(Unavailable, match="layout"):
        next(gone)
    assert server.value(record_of("b")) == "9:what"


def test_against_somebody_who_takes_it_again_and_again(server: EtcdMember, backend: EtcdBackend) -> None:
    """Tokens grow, and no lock that is held is forgotten."""
    tokens: list[int] = []
    over = threading.Event()

    def run(holders: int) -> None:
        with opened(server.url) as other:
            while not over.is_set():
                grant = take(other, "n", holders=holders)
                assert grant.token is not None
                assert other.inspect("n", 5.0).token == grant.token
                assert server.keys(record_of("n"))
                other.renew(grant, 5.0)
                tokens.append(grant.token)
                other.release(grant, 5.0)

    with ThreadPoolExecutor(1) as pool:
        for holders in (1, 2):
            over.clear()
            running = pool.submit(run, holders)
            purged, until = 0, boottime() + 20.0
            while not running.done() and purged < 20 and boottime() < until:
                purged += len(purge(backend))
            over.set()
            running.result(10)
            assert purged == 20
    assert tokens == sorted(set(tokens))


def test_ten_thousand(server: EtcdMember, backend: EtcdBackend) -> None:
    """In requests of many each."""
    count = 10_000
    for start in range(0, count, 100):
        puts = "".join(f"put {record_of(f'job-{number}')} 1:\n" for number in range(start, start + 100))
        etcdctl_transaction(server, puts)
    held = take(backend, "job-77")
    start_at = boottime()
    gone = purge(backend)
    assert boottime() - start_at < 60.0
    assert len(set(gone)) == len(gone) == count - 1
    assert server.keys(record_of("job")) == [record_of("job-77")]
    assert try_once(backend, "job-77") is None
    backend.release(held, 5.0)


def etcdctl_transaction(server: EtcdMember, puts: str) -> None:
    subprocess.run(
        ["etcdctl", f"--endpoints={server.place}", "txn"],
        input=f"\n{puts}\n\n",
        env={"ETCDCTL_API": "3", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
