"""At most one holder, whatever the name, however long, however many."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contenders import acquire, client, never, request, take, try_once
from distlock.backends.base import Backend, Request
from distlock.clock import boottime

from .engines import Engine

NAMES = [
    "p",
    "P",
    "p/1",
    "p/",
    "/p",
    "//p",
    "p ",
    " p",
    "p p",
    ".",
    "..",
    "../p",
    "%70",
    "p%2F1",
    "p*",
    "p?",
    "p\\",
    "p'q",
    'p"q',
    "замок",
    "замок/1",
    "鍵",
    "é",
    "e\u0301",
    "🔒",
    "x" * 200,
    "x" * 199,
    "ж" * 100,
]


def test_the_first_try_is_granted_and_the_second_is_not(backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name, ttl=20.0, owner="first")
    assert (grant.name, grant.owner, grant.ttl) == (name, "first", 20.0)
    assert try_once(other, name) is None
    assert try_once(backend, name) is None
    backend.release(grant, 5.0)
    assert try_once(other, name) is not None


def test_a_grant_is_valid_from_before_it_was_asked_for(backend: Backend, name: str) -> None:
    before = boottime()
    grant = take(backend, name)
    after = boottime()
    assert before <= grant.valid_from <= after
    renewed = backend.renew(grant, 5.0)
    assert after <= renewed.valid_from <= boottime()
    assert (renewed.owner, renewed.token, renewed.ttl) == (grant.owner, grant.token, grant.ttl)


def test_all_names_are_different_locks(backend: Backend) -> None:
    mark = os.urandom(4).hex()
    names = [*NAMES, *(f"{mark}{name}"[:200] for name in NAMES[:10])]
    grants = [take(backend, name, seconds=0.5) for name in names]
    for grant in grants:
        assert backend.inspect(grant.name, 5.0).holder is not None
        assert try_once(backend, grant.name) is None
        backend.release(grant, 5.0)


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"], exclude_characters="{}"), min_size=1)
        .filter(lambda text: len(text.encode()) < 190)
        .filter(lambda text: text[0] != "-"),
        min_size=2,
        max_size=4,
        unique=True,
    )
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_names_are_different_locks(backend: Backend, names: list[str]) -> None:
    grants = [take(backend, name, seconds=0.5) for name in names]
    try:
        assert [backend.inspect(name, 5.0).name for name in names] == names
    finally:
        for grant in grants:
            backend.release(grant, 5.0)


def test_a_lease_is_held_over_many_ttls(engine: Engine, backend: Backend, other: Backend, name: str) -> None:
    grant = take(backend, name, ttl=engine.ttl)
    with other.enqueue(request(name, engine.ttl)) as ticket, never() as cancel:
        assert ticket.poll() is None
        renew_at = boottime()
        until = boottime() + 6 * engine.ttl
        while boottime() < until:
            if boottime() >= renew_at:
                grant = backend.renew(grant, engine.ttl / 3)
                renew_at = boottime() + engine.ttl / 3
            ticket.wait(engine.ttl / 50, cancel)
            assert ticket.poll() is None
        backend.release(grant, 5.0)
        assert acquire(ticket).owner != grant.owner


def test_many_processes_count_under_the_lock(url: str, name: str, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    script = str(Path(__file__).parent.parent / "contenders.py")
    processes = [
        subprocess.Popen(
            [sys.executable, script, url, name, "--ttl=30", f"--count={counter}"],
            env=dict(os.environ, PYTHONPATH=":".join(sys.path)),
        )
        for _ in range(25)
    ]
    assert [process.wait(100) for process in processes] == [0] * 25
    assert counter.read_text() == "100"


@pytest.mark.parametrize("label", [None, "", "two words\nand a line"])
def test_what_a_client_says_of_itself_is_kept(backend: Backend, name: str, label: str | None) -> None:
    with backend.enqueue(Request(name, 30.0, client("me", label=label))) as ticket:
        acquire(ticket)
    holder = backend.inspect(name, 5.0).holder
    assert holder is not None
    assert (holder.owner, holder.label, holder.pid, holder.user) == ("me", label, os.getpid(), "tester")
