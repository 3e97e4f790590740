"""Finding and signalling processes, with real ones: orphans, zombies, sessions, threads, strange names.

Each test describes a family in a small program. Its root is a subreaper, as the supervisor is, and every process lives
until the test lets go of their common stdin, so that none is left behind, however the test ends.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from distlock.supervise import tree
from distlock.supervise.tree import Process
from processes import wait_until

PRELUDE = """
import ctypes, os, signal, sys, threading

libc = ctypes.CDLL(None)
libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def tell(name):
    os.write(1, f"{name} {os.getpid()}\\n".encode())


def live(name):
    tell(name)
    os.read(0, 1)
    os._exit(0)


def fork(body, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            body(*arguments)
        finally:
            os._exit(0)
    return pid


def zombie(pid):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
"""


class Family:
    """The processes of one program; ``pids`` by the names they gave themselves, the root's being ``root``."""

    def __init__(self, program: str, *names: str, environment: dict[str, str] | None = None) -> None:
        self._root = subprocess.Popen(
            [sys.executable, "-c", f"{PRELUDE}\n{program}\nlive('root')"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._root.stdout
        self._out = self._root.stdout
        self.pids: dict[str, int] = {}
        self.await_names("root", *names)

    def await_names(self, *names: str) -> None:
        while not set(names) <= set(self.pids):
            line = self._out.readline().split()
            assert line, f"the family died; it is {self.pids}"
            self.pids[line[0].decode()] = int(line[1])

    @property
    def root(self) -> int:
        return self._root.pid

    def names(self, processes: list[Process]) -> list[str]:
        """Sorted, and twice if found twice."""
        known = {pid: name for name, pid in self.pids.items()}
        return sorted(known.get(process.pid, f"unknown {process.pid}") for process in processes)

    def identity(self, name: str) -> Process:
        found = tree.identify(self.pids[name])
        assert found, f"{name} is dead"
        return found

    def descendants(self, *without: str) -> list[str]:
        return self.names(tree.descendants(self.root, frozenset(self.pids[name] for name in without)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """The pipe ends when the last process of the family is gone."""
        assert self._root.stdin
        self._root.stdin.close()
        for pid in self.pids.values():
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass
        self._out.read()
        self._out.close()
        self._root.wait()


BRANCHES = """
def parent():
    fork(live, "grandchild")
    live("child")

fork(parent)
fork(live, "sibling")
"""

DAEMON = """
def daemonise():
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.closerange(3, 100)
    live("daemon")

zombie(fork(daemonise))
"""


def _refuse(code: int) -> Callable[..., int]:
    def call(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    return call


# -- who is below ------------------------------------------------------------------------------------------------------


def test_all_generations_and_not_the_root() -> None:
    with Family(BRANCHES, "child", "grandchild", "sibling") as family:
        assert sorted(tree.children(family.root)) == sorted([family.pids["child"], family.pids["sibling"]])
        assert family.descendants() == ["child", "grandchild", "sibling"]


def test_what_is_left_out_is_left_out_with_all_below_it() -> None:
    with Family(BRANCHES, "child", "grandchild", "sibling") as family:
        assert family.descendants("child") == ["sibling"]
        assert family.descendants("grandchild") == ["child", "sibling"]
        assert family.descendants("child", "sibling") == []


def test_a_double_fork_and_a_session_of_its_own_do_not_hide_a_daemon() -> None:
    with Family(DAEMON, "daemon") as family:
        assert os.getsid(family.pids["daemon"]) != os.getsid(family.root)
        assert family.descendants() == ["daemon"]


def test_a_child_of_any_thread_is_a_child() -> None:
    program = """
def work():
    fork(live, "of-the-thread")
    os.read(0, 1)

threading.Thread(target=work, daemon=True).start()
"""
    with Family(program, "of-the-thread") as family:
        assert tree.children(family.root) == [family.pids["of-the-thread"]]
        assert family.descendants() == ["of-the-thread"]


def test_a_zombie_is_a_child_but_no_live_descendant() -> None:
    program = """
dead = fork(tell, "zombie")
zombie(dead)
fork(live, "child")
"""
    with Family(program, "zombie", "child") as family:
        assert family.pids["zombie"] in tree.children(family.root)
        assert family.descendants() == ["child"]


def test_nothing_is_below_a_process_that_is_gone() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert tree.children(gone.pid) == []
    assert tree.descendants(gone.pid, frozenset()) == []


def test_a_thread_that_ends_while_we_look_hides_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    with Family(BRANCHES, "child", "grandchild", "sibling") as family:
        real = os.listdir

        def with_one_that_ended(path: str) -> list[str]:
            return ["999999999", *real(path)] if path.endswith("/task") else real(path)

        monkeypatch.setattr(os, "listdir", with_one_that_ended)
        assert family.descendants() == ["child", "grandchild", "sibling"]


def test_an_orphan_that_comes_to_the_root_while_we_look_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent was alive when the root's children were read, and dead when its own were: nothing seems left."""
    program = """
def parent():
    fork(live, "orphan")
    live("parent")

fork(parent)
"""
    with Family(program, "parent", "orphan") as family:
        parent, orphan = family.identity("parent"), family.identity("orphan")
        real = tree.children

        def parent_dies_meanwhile(pid: int) -> list[int]:
            if pid == parent.pid:
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: orphan.pid in real(family.root))
            return real(pid)

        monkeypatch.setattr(tree, "children", parent_dies_meanwhile)
        assert tree.descendants(family.root, frozenset()) == [orphan]


def test_the_same_children_where_the_kernel_has_no_list_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, mode: str) -> Any:
        if path.endswith("/children"):
            raise FileNotFoundError(errno.ENOENT, path)
        return open(path, mode)

    exists: Callable[[str], bool] = os.path.exists
    with Family(BRANCHES + DAEMON, "child", "grandchild", "sibling", "daemon") as family:
        expected = tree.children(family.root)
        monkeypatch.setattr(tree, "open", refuse, raising=False)
        monkeypatch.setattr(os.path, "exists", lambda path: not str(path).endswith("/children") and exists(path))
        assert sorted(tree.children(family.root)) == sorted(expected)
        assert family.descendants() == ["child", "daemon", "grandchild", "sibling"]


# -- who is who --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", ") Z 1 1 (", "two words", "((("])
def test_a_process_is_known_whatever_its_name_is(name: str) -> None:
    program = f"""
def named():
    with open("/proc/self/comm", "w") as file:
        file.write({name!r})
    live("named")

fork(named)
"""
    with Family(program, "named") as family:
        pid = family.pids["named"]
        assert Path(f"/proc/{pid}/comm").read_text() == name + "\n"
        assert family.identity("named").pid == pid
        assert family.descendants() == ["named"]
        assert tree.in_group(os.getpgid(pid), among=[family.identity("named")]) != []


def test_an_identity_stays_and_ends_with_the_process() -> None:
    with Family("fork(live, 'child')", "child") as family:
        child = family.identity("child")
        assert tree.identify(child.pid) == child
        assert tree.is_alive(child)
        os.kill(child.pid, signal.SIGKILL)
        wait_until(lambda: not tree.is_alive(child))
        assert tree.identify(child.pid) is None, "it is a zombie"
        assert tree.children(family.root) == [child.pid]


def test_a_later_process_with_the_same_pid_is_another() -> None:
    me = tree.identify(os.getpid())
    assert me
    assert tree.is_alive(me)
    assert not tree.is_alive(me._replace(start=me.start - 1))


def test_start_is_the_start_of_the_process() -> None:
    def ticks() -> int:
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))

    before = ticks()
    with Family("fork(live, 'child')", "child") as family:
        assert before <= family.identity("root").start <= family.identity("child").start <= ticks()


def test_a_process_whose_first_thread_has_ended_is_alive() -> None:
    """Its state is that of a zombie, and its other threads run on."""
    program = """
def headless():
    threading.Thread(target=live, args=("headless",)).start()
    libc.pthread_exit(None)

fork(headless)
"""
    with Family(program, "headless") as family:
        pid = family.pids["headless"]
        wait_until(lambda: ") Z " in Path(f"/proc/{pid}/stat").read_text())
        headless = family.identity("headless")
        assert family.descendants() == ["headless"]
        assert tree.in_group(os.getpgid(pid), among=[headless]) == [headless]
        assert tree.send([headless], signal.SIGKILL) == []
        wait_until(lambda: not tree.is_alive(headless))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_cannot_be_read_does_not_pass_for_dead(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    with Family("fork(live, 'child')", "child") as family:
        child = family.identity("child")
        monkeypatch.setattr(tree, "open", _refuse(code), raising=False)
        for look in (tree.is_alive, lambda process: tree.send([process], signal.SIGKILL)):
            with pytest.raises(OSError, match=os.strerror(code)):
                look(child)
        with pytest.raises(OSError, match=os.strerror(code)):
            tree.children(family.root)
        with pytest.raises(OSError, match=os.strerror(code)):
            tree.in_group(os.getpgid(child.pid), among=[child])


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESRCH])
def test_what_ends_while_it_is_read_is_gone(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    with Family("fork(live, 'child')", "child") as family:
        child = family.identity("child")
        monkeypatch.setattr(tree, "open", _refuse(code), raising=False)
        assert not tree.is_alive(child)
        assert tree.in_group(os.getpgid(child.pid), among=[child]) == []
        assert tree.children(child.pid) == []


# -- groups and owners -------------------------------------------------------------------------------------------------


def test_a_group_is_its_live_members_of_all_or_among_some() -> None:
    program = """
def group():
    os.setpgid(0, 0)
    zombie(fork(tell, "zombie"))
    fork(live, "member")
    live("leader")

fork(group)
fork(live, "other")
"""
    with Family(program, "leader", "member", "zombie", "other") as family:
        leader, member, other = map(family.identity, ("leader", "member", "other"))
        assert family.names(tree.in_group(leader.pid)) == ["leader", "member"]
        assert tree.in_group(leader.pid, among=[member, other]) == [member]
        assert tree.in_group(leader.pid, among=[]) == []
        assert tree.in_group(other.pid) == []


def test_a_group_outlives_its_leader() -> None:
    program = """
def group():
    os.setpgid(0, 0)
    fork(live, "member")

leader = fork(group)
os.waitpid(leader, 0)
os.write(1, f"leader {leader}\\n".encode())
"""
    with Family(program, "leader", "member") as family:
        assert family.names(tree.in_group(family.pids["leader"])) == ["member"]


OWNER = "0123456789abcdef"


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"DISTLOCK_RUN": OWNER}, True),
        ({"A": "1", "DISTLOCK_RUN": f"outer:{OWNER}:inner", "Z": "2"}, True),
        ({"DISTLOCK_RUN": "another"}, False),
        ({"DISTLOCK_OWNER": OWNER}, False),
        ({"X": f"DISTLOCK_RUN={OWNER}", "DISTLOCK_RUN": "another"}, False),
        ({}, False),
    ],
)
def test_who_carries_the_owner_id_in_its_run(environment: dict[str, str], found: bool) -> None:
    program = """
zombie(fork(tell, "zombie"))
fork(live, "child")
"""
    with Family(program, "child", "zombie", environment=environment) as family:
        assert family.names(tree.with_owner(OWNER)) == (["child", "root"] if found else [])


# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["pidfd", "no pidfd"])
def any_kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no pidfd":
        monkeypatch.setattr(os, "pidfd_open", _refuse(errno.ENOSYS))


@pytest.mark.usefixtures("any_kernel")
def test_each_gets_the_signal_and_nobody_else() -> None:
    program = """
def listen(name):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
    tell(name)
    number = signal.sigwait({signal.SIGUSR1, signal.SIGUSR2})
    live(f"{name}-{signal.Signals(number).name}")

for name in ("a", "b", "c"):
    fork(listen, name)
"""
    with Family(program, "a", "b", "c") as family:
        a, b, c = map(family.identity, "abc")
        assert tree.send([a, c], signal.SIGUSR1) == []
        family.await_names("a-SIGUSR1", "c-SIGUSR1")
        assert tree.send([b], signal.SIGUSR2) == []
        family.await_names("b-SIGUSR2")


@pytest.mark.usefixtures("any_kernel")
def test_a_later_process_with_the_same_pid_is_not_signalled() -> None:
    program = """
def count():
    got = []
    signal.signal(signal.SIGUSR1, lambda *_: tell("SIGUSR1"))
    signal.signal(signal.SIGUSR2, lambda *_: tell("SIGUSR2"))
    tell("child")
    while True:
        os.read(0, 1) or os._exit(0)

fork(count)
"""
    with Family(program, "child") as family:
        child = family.identity("child")
        assert tree.send([child._replace(start=child.start - 1)], signal.SIGUSR1) == []
        assert tree.send([child], signal.SIGUSR2) == []
        family.await_names("SIGUSR2")
        # Had it been sent it would have been told first: it has the lower number, too.
        assert "SIGUSR1" not in family.pids


@pytest.mark.usefixtures("any_kernel")
def test_those_that_are_gone_or_zombies_stop_nobody() -> None:
    gone = subprocess.Popen(["true"])
    identity = Process(gone.pid, 1)
    gone.wait()
    with Family("zombie(fork(tell, 'zombie'))\nfork(live, 'child')", "zombie", "child") as family:
        child = family.identity("child")
        unburied = Process(family.pids["zombie"], child.start)
        assert tree.send([identity, unburied, child], signal.SIGKILL) == []
        wait_until(lambda: not tree.is_alive(child))


def test_those_that_must_not_be_signalled_are_told_and_the_rest_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with Family("fork(live, 'protected')\nfork(live, 'child')", "protected", "child") as family:
        protected, child = map(family.identity, ("protected", "child"))
        real_open, real_send = os.pidfd_open, signal.pidfd_send_signal
        protected_handles: set[int] = set()

        def remember(pid: int) -> int:
            handle = real_open(pid)
            (protected_handles.add if pid == protected.pid else protected_handles.discard)(handle)
            return handle

        def as_of_another_user(handle: int, number: int) -> None:
            if handle in protected_handles:
                raise PermissionError(errno.EPERM, "not yours")
            real_send(handle, number)

        monkeypatch.setattr(os, "pidfd_open", remember)
        monkeypatch.setattr(signal, "pidfd_send_signal", as_of_another_user)
        assert tree.send([protected, child], signal.SIGKILL) == [protected]
        wait_until(lambda: not tree.is_alive(child))
        assert tree.is_alive(protected)


def test_no_descriptor_is_left_open() -> None:
    me = tree.identify(os.getpid())
    assert me
    before = os.listdir("/proc/self/fd")
    tree.send([me, me._replace(start=0)], 0)
    assert os.listdir("/proc/self/fd") == before
