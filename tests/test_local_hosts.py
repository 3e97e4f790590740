"""Local locks: which boot wrote a record, whose clock it is, and containers, where both may be made up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contenders import Contender, acquire, environment, request, take, try_once
from distlock.backends.base import LeaseLost
from distlock.backends.local import LocalBackend
from distlock.backends.local_boot import Host
from distlock.clock import boottime

HERE = Host(boot="this boot", machine="this machine", contained=False, namespace="pid:[4026531836]", shift=0.0)


class Fleet:
    """Backends on one directory as they would be on different hosts, boots and containers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[LocalBackend] = []

    def on(self, **changes: Any) -> LocalBackend:
        self._opened.append(LocalBackend(lambda: self._folder, boottime, HERE._replace(**changes)))
        return self._opened[-1]

    def close(self) -> None:
        for backend in self._opened:
            backend.close()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path / "locks")
    yield made
    made.close()


def test_a_lease_of_an_earlier_boot_is_void_at_once(fleet: Fleet) -> None:
    before = fleet.on(boot="last boot")
    grant = take(before, "n", ttl=60.0)
    now = fleet.on()
    assert not now.inspect("n", 5.0).held
    with pytest.raises(LeaseLost):
        now.renew(grant, 5.0)
    assert try_once(now, "n")
    with pytest.raises(LeaseLost):
        before.renew(grant, 5.0)


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        ({"machine": "another machine"}, {}),
        ({"machine": ""}, {"machine": ""}),
        ({"contained": True}, {}),
        ({}, {"contained": True}),
        ({"contained": True}, {"contained": True}),
    ],
    ids=["other machine", "no machine id", "writer contained", "reader contained", "both contained"],
)
def test_a_lease_of_a_boot_that_may_run_elsewhere_is_watched_for_its_ttl(
    fleet: Fleet, writer: dict[str, Any], reader: dict[str, Any]
) -> None:
    holder = fleet.on(boot="another boot", **writer)
    grant = take(holder, "n", ttl=1.0)
    looking = fleet.on(**reader)
    assert looking.inspect("n", 5.0).held
    assert try_once(looking, "n") is None
    with looking.enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        for _ in range(3):  # renewals are seen as changes, whatever the other's clock says
            until = boottime() + 0.6
            while boottime() < until:
                assert ticket.poll() is None
            grant = holder.renew(grant, 5.0)
        assert ticket.poll() is None
        seen = boottime()
        acquire(ticket)
        assert 0.99 <= boottime() - seen < 2.2


def test_watching_takes_the_holders_ttl_not_the_contenders(fleet: Fleet) -> None:
    take(fleet.on(boot="another boot", contained=True), "n", ttl=2.0)
    with fleet.on().enqueue(request("n", 0.5)) as ticket:
        seen = boottime()
        acquire(ticket)
    assert boottime() - seen >= 1.99


def test_a_frozen_waiter_is_passed_though_another_boot_released(fleet: Fleet) -> None:
    elsewhere = fleet.on(boot="another boot", contained=True)
    held = take(elsewhere, "n")
    frozen = elsewhere.enqueue(request("n", 30.0))
    assert frozen.poll() is None
    with fleet.on().enqueue(request("n", 30.0)) as ticket:
        assert ticket.poll() is None
        seen = boottime()
        elsewhere.release(held, 5.0)
        acquire(ticket)
        assert 4.0 < boottime() - seen < 7.5
    frozen.close()


def test_a_record_from_the_future_is_watched_too(fleet: Fleet) -> None:
    """The same boot id with a clock that is ahead: no shift that we know of explains it."""
    take(fleet.on(shift=-100_000.0), "n", ttl=1.0)
    here = fleet.on()
    assert try_once(here, "n") is None
    take(here, "n", seconds=2.5)


@pytest.mark.parametrize("inside", [True, False], ids=["holder inside", "contender inside"])
def test_a_time_namespace_sees_the_same_lease(tmp_path: Path, inside: bool) -> None:
    """Clocks 100,000 s apart under one boot id: held is held, and it expires when its TTL is over, not before."""
    url = f"local://{tmp_path / 'locks'}"
    prefix = ["unshare", "--time", "--boottime", "100000"]
    with (
        Contender(url, "n", "--no-renewals", ttl=2.0, prefix=prefix if inside else ()) as holder,
        Contender(url, "n", prefix=() if inside else prefix) as waiter,
    ):
        _, inner = holder.granted()
        waiter.expect("waiting")
        outer = boottime()
        assert abs(inner - outer) > 90_000 or not inside
        backend = LocalBackend.from_url(url, environment())
        left = backend.inspect("n", 5.0).expires_in
        assert left is not None
        assert 0 < left < 2.0
        waiter.granted(5.0)
        assert left - 0.1 < boottime() - outer < left + 1.5
        # and what is held and renewed inside stays held
        assert try_once(backend, "n") is None


CLOCK = "from distlock.backends.local_boot import *; from distlock.clock import boottime; h = Host.read()\n"


def test_the_hosts_clock_is_the_same_in_a_time_namespace() -> None:
    command = [sys.executable, "-c", CLOCK + "print(Ages(h, boottime).now(), h.boot)"]
    environ = dict(os.environ, PYTHONPATH=":".join(sys.path))
    shifted = ["unshare", "--time", "--boottime", "100000", *command]
    plain, moved = (
        subprocess.run(one, env=environ, capture_output=True, check=True, text=True).stdout.split()
        for one in (command, shifted)
    )
    assert abs(float(plain[0]) - float(moved[0])) < 5
    assert plain[1] == moved[1]


def test_a_pid_namespace_is_a_container() -> None:
    command = [sys.executable, "-c", CLOCK + "print(h.contained, h.namespace)"]
    environ = dict(os.environ, PYTHONPATH=":".join(sys.path))
    for prefix, own_proc in (
        (["unshare", "--pid", "--fork", "--mount-proc"], True),
        (["unshare", "--pid", "--fork"], False),
    ):
        shown = subprocess.run(
            [*prefix, *command], env=environ, capture_output=True, check=True, text=True
        ).stdout.split()
        assert shown[0] == "True"
        # Where /proc is that of the outer namespace, its pids are not ours to judge by.
        assert (len(shown) == 2) == own_proc


@pytest.mark.parametrize(("theirs", "ours"), [(3, 1), (2, 3)])
def test_holders_of_a_boot_that_may_be_gone_are_waited_out_by_who_wants_another_number(
    fleet: Fleet, theirs: int, ours: int
) -> None:
    take(fleet.on(boot="a container's", contained=True), "n", 1.0, holders=theirs)
    with fleet.on().enqueue(request("n", 30.0, holders=ours)) as ticket:
        assert ticket.poll() is None
        assert acquire(ticket, 6.0).holders == ours
