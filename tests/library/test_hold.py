"""distlock.hold in this process, over each engine."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import distlock
from distlock.backends import open_backend
from distlock.backends.base import Environment
from distlock.clock import boottime
from distlock.errors import NestedRun
from distlock.supervise import tree
from hosting import inspected, is_held, take_away
from processes import Lab, renewer_of, wait_until
from servers import free_port


@pytest.fixture
def lab(two_labs: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """This process uses what the lab's command uses."""
    for name in ("DISTLOCK_BACKEND", "DISTLOCK_STATE_DIR", "HOME"):
        monkeypatch.setenv(name, two_labs.environment[name])
    return two_labs


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No process, zombies included; no thread; no descriptor."""
    descriptors, threads = set(os.listdir("/proc/self/fd")), threading.active_count()
    yield
    assert not renewers()
    assert threading.active_count() == threads
    assert set(os.listdir("/proc/self/fd")) <= descriptors


def renewers() -> list[int]:
    """Of this process, zombies too."""
    return [pid for pid in tree.children(os.getpid()) if "(distlock-renew)" in Path(f"/proc/{pid}/stat").read_text()]


def test_excludes_the_command_and_is_excluded(lab: Lab) -> None:
    with distlock.hold(lab.job) as lease:
        assert lab.run("-n", lab.job, "--", "true").returncode == 75
        assert 20 < lease.remaining() < 30
        lease.checkpoint()
        assert lease.name == lab.job
        assert len(lease.owner) == 32
    done = lab.run("-n", lab.job, "--", "sh", "-c", "echo $DISTLOCK_FENCING_TOKEN")
    assert done.returncode == 0
    assert lease.token is not None
    assert int(done.stdout) > lease.token


def test_what_operators_see(lab: Lab) -> None:
    with distlock.hold(lab.job, ttl=7.5, label="reindexing", backend=lab.backend) as lease:
        shown = inspected(lab)
    holder = shown["holder"]
    assert (holder["pid"], holder["owner"], holder["label"]) == (os.getpid(), lease.owner, "reindexing")
    assert (shown["token"], shown["ttl_seconds"]) == (lease.token, 7.5)
    assert holder["command"] == sys.argv[0]


def test_waits_for_the_command(lab: Lab) -> None:
    run = lab.start(lab.job, "--", "sh", "-c", "echo started; sleep 0.7; date +%s.%N")
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    with distlock.hold(lab.job):
        had = time.time()
    assert float(run.stdout.readline()) < had


@pytest.mark.parametrize(("waiting", "told"), [({"wait": 0.3}, "not had within 300ms: "), ({"nonblock": True}, "")])
def test_busy(lab: Lab, waiting: dict[str, Any], told: str) -> None:
    run = lab.start("--label", "other", lab.job, "--", "sh", "-c", "echo started; exec sleep 60")
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    with pytest.raises(distlock.Busy) as raised, distlock.hold(lab.job, **waiting):
        raise AssertionError("the body ran without the lock")
    message = str(raised.value)
    assert message.startswith(f"'{lab.job}': {told}held by ")
    assert f":{run.pid} " in message
    assert "'other'" in message


def test_tokens_grow(lab: Lab) -> None:
    tokens = []
    for _ in range(3):
        with distlock.hold(lab.job) as lease:
            tokens.append(lease.token or 0)
    assert tokens == sorted(set(tokens))


def test_error_of_the_body_goes_through_and_the_lock_is_free(lab: Lab) -> None:
    with pytest.raises(ZeroDivisionError), distlock.hold(lab.job):
        _ = 1 / 0
    assert not is_held(lab)


def test_nested_would_wait_for_itself(lab: Lab) -> None:
    with distlock.hold(lab.job), pytest.raises(NestedRun), distlock.hold(lab.job):
        raise AssertionError("the body ran without the lock")
    with distlock.hold(lab.job, nonblock=True):
        pass


def test_inside_a_run_that_holds_it(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with distlock.hold(lab.job) as lease:
        monkeypatch.setenv("DISTLOCK_RUN", f"{'0' * 32}:{lease.owner}")
        outcome: list[BaseException] = []

        def hold_in_another_thread() -> None:
            try:
                with distlock.hold(lab.job):
                    raise AssertionError("the body ran without the lock")
            except distlock.Busy as error:
                outcome.append(error)

        thread = threading.Thread(target=hold_in_another_thread)
        thread.start()
        thread.join(10)
        assert isinstance(outcome[0], NestedRun)


def test_threads_wait_for_each_other(lab: Lab) -> None:
    """One at a time, each with a greater token; none takes another one's lock for its own."""
    inside, most, tokens = [0], [0], []

    def work() -> None:
        with distlock.hold(lab.job, wait=60) as lease:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            time.sleep(0.02)
            inside[0] -= 1
            tokens.append(lease.token)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == [1]
    assert len(tokens) == len(set(tokens)) == 4


def test_one_lease_in_many_threads(lab: Lab) -> None:
    """They ask and wait while it is held, and while it is given back."""
    failed: list[BaseException] = []
    answers: list[bool] = []
    asked = threading.Semaphore(0)

    def ask(lease: distlock.Lease) -> None:
        try:
            while not lease.lost.wait(0.001) and lease.remaining() > 0:
                lease.checkpoint(need=0)
                asked.release()
        except distlock.LeaseExpiring as error:
            assert "was given back" in str(error)
        except BaseException as error:  # noqa: BLE001 - shown below
            failed.append(error)
        answers.append(lease.lost.wait())

    with distlock.hold(lab.job) as lease:
        threads = [threading.Thread(target=ask, args=(lease,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for _ in range(600):
            assert asked.acquire(timeout=10)
    for thread in threads:
        thread.join(10)
    assert failed == []
    assert answers == [False] * 6


def test_two_locks_at_once(lab: Lab) -> None:
    with distlock.hold(lab.job) as one, distlock.hold(f"{lab.job}/other") as two:
        assert one.owner != two.owner
        one.checkpoint()
        two.checkpoint()


def test_after_the_end(lab: Lab) -> None:
    with distlock.hold(lab.job) as lease:
        answers: list[bool] = []
        watchdog = threading.Thread(target=lambda: answers.append(lease.lost.wait()))
        watchdog.start()
    watchdog.join(5)
    assert answers == [False]
    assert lease.remaining() == 0
    assert not lease.lost.is_set()
    with pytest.raises(distlock.LeaseExpiring, match="was given back"):
        lease.checkpoint(need=0)


def test_taken_away_and_asked(lab: Lab) -> None:
    """Told within a third of the TTL. Who was told is not told again."""
    with distlock.hold(lab.job, ttl=3) as lease:
        take_away(lab, lease.owner, lease.token)
        assert lease.lost.wait(5)
        assert lease.remaining() == 0
        with pytest.raises(distlock.LeaseExpiring, match="lease lost: "):
            lease.checkpoint()


def test_revoked_by_an_operator(lab: Lab) -> None:
    """Told at the next renewal; the lock is nobody else's before the context is left."""
    backend = open_backend(lab.backend, Environment(boottime, lambda: lab.folder))
    try:
        with distlock.hold(lab.job, ttl=6) as lease:
            assert backend.revoke(lab.job, lease.token, lease.owner, "ann", 5, now=False)
            assert lease.lost.wait(5)
            assert is_held(lab)
    finally:
        backend.close()
    assert not is_held(lab)


def test_taken_away_and_nobody_asked(lab: Lab) -> None:
    holding = distlock.hold(lab.job, ttl=3)
    lease = holding.__enter__()
    take_away(lab, lease.owner, lease.token)
    renewer = holding._renewer
    assert renewer
    wait_until(lambda: renewer.hard() < 0, what="the renewer to learn of it")  # asking the lease would be asking
    with pytest.raises(distlock.LeaseLost, match=f"'{lab.job}': lease lost: "):
        holding.__exit__(None, None, None)
    assert not is_held(lab)


def test_taken_away_and_the_body_failed(lab: Lab) -> None:
    """Its own error counts, with a note."""

    def body() -> None:
        with distlock.hold(lab.job, ttl=3) as lease:
            take_away(lab, lease.owner, lease.token)
            lease.lost.wait(5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        body()
    assert raised.value.__notes__[0].startswith(f"distlock: '{lab.job}': lease lost: ")


def test_entered_twice(lab: Lab) -> None:
    holding = distlock.hold(lab.job)
    with holding:
        pass
    with pytest.raises(RuntimeError, match="hold\\(\\) of its own"), holding:
        raise AssertionError("the body ran without the lock")


def test_nobody_refers_to_it_any_more(lab: Lab) -> None:
    """As with a file that was never closed."""
    holding = distlock.hold(lab.job)
    lease = holding.__enter__()
    renewer = renewer_of(os.getpid())
    with pytest.warns(ResourceWarning):
        del holding, lease
    wait_until(lambda: tree.identify(renewer) is None)
    assert not is_held(lab)
    with distlock.hold(lab.job):
        assert len(renewers()) == 1, "the one left alone was reaped"


# -- not on an engine each ---------------------------------------------------------------------------------------------


def test_url_and_password_are_in_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("DISTLOCK_PASSWORD", "hunter3")
        found: list[bytes] = []

        def look() -> None:
            silent.accept()[0].close()
            found.append(Path(f"/proc/{renewer_of(os.getpid())}/cmdline").read_bytes())

        thread = threading.Thread(target=look)
        thread.start()
        with (
            pytest.raises(distlock.Unavailable) as raised,
            distlock.hold("job", nonblock=True, backend=f"redis://u:hunter2@127.0.0.1:{port}"),
        ):
            raise AssertionError("the body ran without the lock")
        thread.join(5)
    assert b"hunter" not in found[0]
    assert str(port).encode() not in found[0]
    assert "hunter" not in str(raised.value)


def test_unavailable() -> None:
    with (
        pytest.raises(distlock.Unavailable, match=r"127\.0\.0\.1"),
        distlock.hold("job", nonblock=True, backend=f"redis://127.0.0.1:{free_port()}"),
    ):
        raise AssertionError("the body ran without the lock")


@pytest.mark.parametrize("url", ["redis://h/notadb", "local://relative"])
def test_url_that_cannot_work(url: str) -> None:
    with pytest.raises(distlock.ConfigurationError), distlock.hold("job", backend=url):
        raise AssertionError("the body ran without the lock")


def test_unknown_scheme_is_told_at_once() -> None:
    with pytest.raises(distlock.ConfigurationError, match="no backend for 'mysql:'"):
        distlock.hold("job", backend="mysql://h")


def test_class_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DISTLOCK_BACKEND", raising=False)
    with pytest.raises(distlock.Refused, match=r"^require='correctness': no .* with backend= or"):
        distlock.hold("job", require="correctness")
    with (
        pytest.raises(distlock.Refused, match="efficiency locks"),
        distlock.hold("job", require="correctness", backend=f"redis://127.0.0.1:{free_port()}"),
    ):
        raise AssertionError("the body ran without the lock")
    with distlock.hold("job", require="correctness", backend=f"local://{tmp_path}/locks") as lease:
        lease.checkpoint()


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("", {}, "is empty"),
        ("a{b}", {}, "braces"),
        ("\udc80", {}, "UTF-8"),
        (b"job", {}, "is a text, not bytes"),
        ("job", {"ttl": 2.9}, "ttl=2.9 is too short"),
        ("job", {"ttl": float("nan")}, "ttl=nan is not a number of seconds"),
        ("job", {"ttl": "30s"}, "ttl='30s' is not a number"),
        ("job", {"ttl": True}, "ttl=True is not a number"),
        ("job", {"wait": -1}, "wait=-1 is not a number"),
        ("job", {"wait": float("inf")}, "wait=inf is not a number"),
        ("job", {"wait": 3, "nonblock": True}, "contradict"),
        ("job", {"require": "safety"}, "require='safety' is none of efficiency, correctness"),
    ],
)
def test_arguments_that_cannot_be_meant(name: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(distlock.UsageError, match=told):
        distlock.hold(name, **options)


def test_no_wait_twice_is_no_contradiction(tmp_path: Path) -> None:
    with distlock.hold("job", wait=0, nonblock=True, backend=f"local://{tmp_path}/locks"):
        pass


def test_several_holders(each_lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with a token and an index of its own; the command counts among them."""
    lab = each_lab
    for name in ("DISTLOCK_BACKEND", "DISTLOCK_STATE_DIR", "HOME"):
        monkeypatch.setenv(name, lab.environment[name])
    leases: list[distlock.Lease] = []

    def one_more() -> None:
        with distlock.hold(lab.job, max_holders=3, wait=10) as lease:
            leases.append(lease)
            assert done.wait(30)

    done = threading.Event()
    threads = [threading.Thread(target=one_more) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(leases) == 2, 20)
        assert sorted(lease.holder_index for lease in leases) == [0, 1]
        assert leases[0].token is None or leases[0].token != leases[1].token
        script = 'echo "$DISTLOCK_HOLDER_INDEX"'
        assert lab.run("--max-holders", "3", lab.job, "--", "sh", "-c", script).stdout == b"2\n"
        for other in (1, 2):
            with (
                pytest.raises(distlock.OtherHolders, match="--max-holders 3"),
                distlock.hold(lab.job, max_holders=other),
            ):
                pass
    finally:
        done.set()
        for thread in threads:
            thread.join()
    with distlock.hold(lab.job) as lease:
        assert lease.holder_index == 0


@pytest.mark.parametrize("number", [0, 1001, -1, True, 2.0, "3", None])
def test_a_number_of_holders_that_cannot_be_meant(number: Any) -> None:
    with pytest.raises(distlock.UsageError, match="max_holders="):
        distlock.hold("job", max_holders=number)
