"""Each example of docs/python.md and README, run as it stands, with stand-ins for what the reader would bring."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import distlock
from hosting import is_held, take_away
from processes import Lab, wait_until

ROOT = Path(__file__).parent.parent.parent
DOCS = (ROOT / "docs/python.md").read_text()


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def example(*words: str) -> str:
    """The one block with all of these in it."""
    (found,) = [block for block in blocks(DOCS) if all(word in block for word in words)]
    return found


def ran(block: str, **stand_ins: object) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example", **stand_ins}
    exec(compile(block, "docs/python.md", "exec"), names)
    return names


@pytest.fixture
def lab(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """As a reader would have it: this process uses what the command uses."""
    for name in ("DISTLOCK_BACKEND", "DISTLOCK_STATE_DIR"):
        monkeypatch.setenv(name, lab.environment[name])
    lab.job = "reindex"
    return lab


def test_every_example_is_run() -> None:
    source = Path(__file__).read_text()
    asked = [words for words in re.findall(r"[ (]example\((\".*?\")\)", source) if "FIRST" not in words]
    shown = {example(*ast.literal_eval(f"({words},)")) for words in asked}
    assert shown | {blocks(DOCS)[0]} == set(blocks(DOCS))


@pytest.mark.parametrize("block", [blocks(DOCS)[0], *blocks((ROOT / "README.md").read_text())])
def test_first_example(lab: Lab, block: str) -> None:
    done = []

    def index(batch: str, token: int) -> None:
        assert is_held(lab)
        done.append((batch, token))

    names = ran(block, batches=lambda: ["a", "b"], index=index)
    assert done == [("a", names["lease"].token), ("b", names["lease"].token)]
    assert not is_held(lab)


@pytest.mark.usefixtures("lab")
def test_conflict(capsys: pytest.CaptureFixture[str]) -> None:
    conflict = example("distlock.Busy")
    done: list[object] = []
    ran(conflict, reindex=done.append)
    assert len(done) == 1
    with distlock.hold("reindex", label="by hand"):
        threads = [threading.Thread(target=ran, args=(conflict,), kwargs={"reindex": done.append})]
        threads[0].start()
        threads[0].join(20)
    assert len(done) == 1
    assert re.match(r"skipped: 'reindex': held by .* 'by hand' since ", capsys.readouterr().out)


def test_guard(lab: Lab) -> None:
    """While the lease lasts; not after its loss; and not by one that the resource knows to be late."""
    names = ran(example("class LeaseGuard"))
    accounts = names["Accounts"](lab.folder / "accounts.db")

    def balances() -> dict[str, int]:
        return dict(accounts.database.execute("SELECT name, balance FROM account"))

    names["pay_interest"](accounts, ["ann", "bob"])
    names["pay_interest"](accounts, ["ann"])
    assert balances() == {"ann": 10, "bob": 5}

    with distlock.hold("interest", ttl=3) as late:
        guard = names["LeaseGuard"](late, accounts, need=0.5)
        guard.add("ann", 1)
        lab.job = "interest"
        take_away(lab, late.owner, late.token)
        names["pay_interest"](accounts, ["bob"])  # the next holder
        with pytest.raises(names["StaleToken"]):
            accounts.add("ann", 100, token=late.token)
        assert late.lost.wait(5)
        with pytest.raises(distlock.LeaseExpiring):
            guard.add("ann", 100)
    assert balances() == {"ann": 11, "bob": 10}
    accounts.database.close()


@pytest.mark.parametrize("lost", [False, True])
def test_thread_that_waits(lab: Lab, lost: bool) -> None:
    stopped: list[bool] = []

    def reindex_until(stop: threading.Event) -> None:
        (lease,) = [frame.frame.f_globals["lease"] for frame in inspect.stack() if "lease" in frame.frame.f_globals][:1]
        if lost:
            take_away(lab, lease.owner, lease.token)
            stopped.append(stop.wait(10))
        else:
            stopped.append(stop.is_set())

    block = example("stop_when_lost").replace('hold("reindex")', 'hold("reindex", ttl=3)')
    before = threading.active_count()
    names = ran(block, reindex_until=reindex_until)
    wait_until(lambda: threading.active_count() == before)
    assert stopped == [lost]
    assert names["stop"].is_set() == lost


def test_whole_body_in_a_thread(lab: Lab) -> None:
    tokens = []

    def reindex_under_lock() -> None:
        with distlock.hold("reindex") as lease:
            tokens.append(lease.token)

    names = ran(example("reindex_under_lock"), reindex_under_lock=reindex_under_lock)
    asyncio.run(names["main"]())
    assert len(tokens) == 1
    assert not is_held(lab)


async def two_batches() -> AsyncIterator[str]:
    for batch in ("a", "b"):
        yield batch


def coroutines(index: Callable[..., Any]) -> dict[str, Any]:
    return ran(example("async def held"), batches=two_batches, index=index)


def test_body_of_coroutines(lab: Lab) -> None:
    """Two tasks that want the same lock have it one after the other, whichever thread enters for them."""
    done: list[int] = []

    async def index(batch: str, token: int) -> None:
        assert batch in "ab"
        await asyncio.sleep(0.05)
        done.append(token)

    main = coroutines(index)["main"]

    async def both() -> None:
        await asyncio.gather(main(), main(), main())

    asyncio.run(both())
    assert done == sorted(done)
    assert len(set(done)) == 3
    assert not is_held(lab)


def test_body_of_coroutines_that_fails(lab: Lab) -> None:
    async def index(batch: str, token: int) -> None:
        raise ValueError(batch, token)

    with pytest.raises(ValueError, match="a"):
        asyncio.run(coroutines(index)["main"]())
    assert not is_held(lab)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_task_that_is_cancelled_while_it_waits(lab: Lab) -> None:
    """Its thread is granted the lock later, and gives it back at once."""

    async def index(batch: str, token: int) -> None:
        raise AssertionError(f"the body ran for {batch} with {token}")

    main = coroutines(index)["main"]
    holding = distlock.hold("reindex")

    async def cancelled() -> None:
        lease = await asyncio.to_thread(holding.__enter__)
        task = asyncio.create_task(main())
        state = Path(lab.folder / "locks")
        await asyncio.to_thread(wait_until, lambda: state.exists() and lab.waiters() == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not lease.lost.is_set()
        await asyncio.to_thread(holding.__exit__, None, None, None)

    asyncio.run(cancelled())
    wait_until(lambda: not is_held(lab))
