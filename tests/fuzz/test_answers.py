"""Servers that answer nonsense: an error of the contract in time, and never a lock that is free or ours. A listing may
lack what cannot be read; and where single bytes were changed the answer may be a true one to another question, so that
only manner and time are judged."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from chaos.sites import SITES, Site
from contenders import environment, request, take
from distlock.backends import open_backend
from distlock.backends.base import Backend, DistlockError, LockState
from distlock.clock import boottime
from processes import Lab

from .mangler import MANGLES, Mangler

pytestmark = pytest.mark.faults

ENGINES = ["etcd", "etcd-cluster"]
TRIES = 12
LONGEST = 12.0
"""Seconds for one call: its own time-out, and the connection's."""
TORN_MAY = "torn"


@pytest.fixture(scope="module", params=ENGINES)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with SITES[request.param](tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture
def held(site: Site) -> Iterator[str]:
    """The name of a lock that somebody holds."""
    name = f"held-{os.urandom(4).hex()}"
    backend = open_backend(site.url([f"127.0.0.1:{server.port}" for server in site.servers]), environment())
    with closing(backend):
        grant = take(backend, name, 120.0)
        yield name
        backend.release(grant, 5.0)


@contextmanager
def through(site: Site, mangle: str, after: int, seed: int) -> Iterator[str]:
    """The URL of the servers behind such proxies."""
    with ExitStack() as stack:
        ports = [
            stack.enter_context(Mangler(server.port, MANGLES[mangle], after, seed)).port for server in site.servers
        ]
        yield site.url([f"127.0.0.1:{port}" for port in ports])


def look(backend: Backend, name: str) -> LockState:
    return backend.inspect(name, 1.0)


def listed(backend: Backend, name: str) -> LockState | None:
    return next((state for state in backend.locks(1.0) if state.name == name), None)


def attempt(backend: Backend, name: str) -> object:
    with backend.enqueue(request(name, 3.0)) as ticket:
        return ticket.poll()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mangle", MANGLES)
@pytest.mark.parametrize("ask", [look, listed, attempt])
def test_nonsense_is_no_answer(site: Site, held: str, mangle: str, ask: Callable[[Backend, str], object]) -> None:
    draw = random.Random(f"{mangle} {ask.__name__}")
    for seed in range(TRIES):
        after = draw.choice([0, draw.randrange(40), draw.randrange(400), draw.randrange(2000)])
        began = boottime()
        with through(site, mangle, after, seed) as url, closing(open_backend(url, environment())) as backend:
            try:
                answer = ask(backend, held)
            except DistlockError as error:
                assert "\n" not in str(error)
            else:
                sound = answer is None if ask is attempt else isinstance(answer, LockState) and answer.held
                assert sound or mangle == TORN_MAY or (ask is listed and answer is None), (after, seed, answer)
        assert boottime() - began < LONGEST, (after, seed)


@pytest.mark.parametrize("mangle", [name for name in MANGLES if name != TORN_MAY])
def test_nothing_is_started(site: Site, held: str, mangle: str, tmp_path: Path) -> None:
    """The command: one line, a code of the table, no child."""
    for after in (0, 100):
        with through(site, mangle, after, 1) as url, closing(Lab(tmp_path, url)) as lab:
            done = lab.run("-n", held, "--", "touch", str(tmp_path / "started"))
        assert done.returncode in (69, 75, 77), done
        words = done.stderr.decode().splitlines()
        assert all(line.startswith("distlock: ") for line in words)
        assert b"internal" not in done.stderr
        with suppress(FileNotFoundError):
            (tmp_path / "started").stat()
            raise AssertionError(done)
