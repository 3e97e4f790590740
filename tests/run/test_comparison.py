"""What docs/comparison.md says of flock and etcdctl, shown by them; and of distlock in the same place."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcd_servers import EtcdMember
from processes import DISTLOCK, Lab, Stamps, wait_until

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "comparison.md").read_text()


def told(row: str) -> tuple[str, str, str]:
    """What the table says of flock, etcdctl and distlock."""
    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| {row} |")]
    cells = [cell.strip() for cell in line.strip("|").split(" | ")]
    return cells[1], cells[2], cells[5].removesuffix(" |")


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMember]:
    one = EtcdMember(tmp_path_factory.mktemp("etcd"))
    with one.running():
        yield one


def etcdctl(member: EtcdMember, *words: str) -> list[str]:
    return ["etcdctl", f"--endpoints={member.place}", "lock", *words]


@pytest.fixture
def wrappers(lab: Lab, member: EtcdMember) -> dict[str, list[str]]:
    """Each runs what is put behind it under the lock `job`. Not that of another test."""
    member.clear()
    return {
        "flock": ["flock", str(lab.folder / "job.lock")],
        "etcdctl": etcdctl(member, "job", "--"),
        "distlock": [DISTLOCK, "run", "job", "--"],
    }


def run(lab: Lab, command: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=lab.environment, input=given, capture_output=True, text=True, check=False, timeout=30
    )


@pytest.mark.parametrize(
    ("row", "script", "codes"),
    [
        ("the command's exit code", "exit 7", {"flock": 7, "etcdctl": 1, "distlock": 7}),
        ("the command died of a signal", "kill -9 $$", {"flock": 137, "etcdctl": 1, "distlock": -9}),
    ],
)
def test_how_the_command_ended(
    lab: Lab, wrappers: dict[str, list[str]], row: str, script: str, codes: dict[str, int]
) -> None:
    assert [told(row)[0], told(row)[1]] in (["passed on", "1, whatever it was"], ["128+N", "1"])
    assert {name: run(lab, [*command, "sh", "-c", script]).returncode for name, command in wrappers.items()} == codes


def test_stdin(lab: Lab, wrappers: dict[str, list[str]]) -> None:
    assert told("stdin of the command") == ("passed on", "empty", "passed on")
    seen = {name: run(lab, [*command, "cat"], "given").stdout for name, command in wrappers.items()}
    assert seen == {"flock": "given", "etcdctl": "", "distlock": "given"}


def test_token(lab: Lab, wrappers: dict[str, list[str]]) -> None:
    assert told("fencing token")[:2] == ("–", "`ETCD_LOCK_REV`")
    variables = {"flock": "FLOCK", "etcdctl": "ETCD_LOCK_REV", "distlock": "DISTLOCK_FENCING_TOKEN"}
    for name, command in wrappers.items():
        found = re.findall(rf"^{variables[name]}\w*=(\d+)$", run(lab, [*command, "env"]).stdout, re.MULTILINE)
        assert len(found) == (0 if name == "flock" else 1)


def test_etcdctl_waits_without_a_bound() -> None:
    assert [told(row)[1] for row in ("does not wait", "waits at most")] == ["–", "–"]
    options = subprocess.run(["etcdctl", "lock", "--help"], capture_output=True, text=True, check=True).stdout
    own = options.partition("\nOPTIONS:")[2].partition("GLOBAL")[0]
    assert set(re.findall(r"--([\w-]+)", own)) == {"help", "ttl"}
    assert "--ttl=10" in own
    assert told("a holder that died")[1].startswith("free after the TTL (10 s)")


def test_a_lost_lease(lab: Lab, member: EtcdMember) -> None:
    """The lease is revoked by somebody else. etcdctl's command goes on beside the next holder's; ours is stopped."""
    assert told("the lease is lost")[1].startswith("the command goes on")
    member.clear()
    command, stamps = lab.stamper()
    first = lab.spawn(etcdctl(member, "lost", "--", *command))
    stamps.writer()
    (lease,) = member.leases()
    member.ctl("lease", "revoke", lease)
    second = run(lab, etcdctl(member, "lost", "--", "echo", "in"))
    assert (second.returncode, second.stdout) == (0, "in\n")
    assert stamps.go_on()
    assert first.poll() is None
    os.kill(stamps.writer(), signal.SIGKILL)
    first.wait()

    command, ours = lab.stamper(name="ours")
    backend = {"DISTLOCK_BACKEND": f"etcd://{member.place}"}
    held = lab.start("lost", "--", *command, environment=backend)
    ours.writer()
    for lease in member.leases():
        member.ctl("lease", "revoke", lease, check=False)
    assert held.wait(20) == 76
    assert not ours.go_on()


def after_kill_9(lab: Lab, command: list[str], name: str) -> Stamps:
    job, stamps = lab.stamper(name=name)
    wrapper = lab.spawn([*command, *job])
    stamps.writer()
    wrapper.kill()
    wrapper.wait()
    return stamps


def test_kill_9_of_the_wrapper(lab: Lab, wrappers: dict[str, list[str]], member: EtcdMember) -> None:
    stamps = {name: after_kill_9(lab, command, name) for name, command in wrappers.items()}
    try:
        assert told("`kill -9` of the wrapper")[0] == "the command goes on and keeps the lock"
        assert stamps["flock"].go_on()
        assert run(lab, ["flock", "-n", str(lab.folder / "job.lock"), "true"]).returncode == 1
        assert told("`kill -9` of the wrapper")[2] == "the command is killed, the lock freed"
        assert run(lab, [DISTLOCK, "run", "-w", "5", "job", "true"]).returncode == 0
        assert not stamps["distlock"].go_on()
        assert told("`kill -9` of the wrapper")[1].startswith("the command goes on, beside the next")
        next_one = run(lab, etcdctl(member, "job", "--", "echo", "in"))  # after its TTL
        assert next_one.stdout == "in\n"
        assert stamps["etcdctl"].go_on()
    finally:
        for name in ("flock", "etcdctl"):
            os.kill(stamps[name].writer(), signal.SIGKILL)
    wait_until(lambda: run(lab, ["flock", "-n", str(lab.folder / "job.lock"), "true"]).returncode == 0)


def test_etcdctl_and_distlock_exclude_each_other(lab: Lab, member: EtcdMember) -> None:
    assert "`etcdctl lock /distlock/lock/NAME`" in TEXT
    holder = lab.spawn(etcdctl(member, "/distlock/lock/NAME", "--", "sh", "-c", "echo in; exec sleep 60"))
    assert holder.stdout
    assert holder.stdout.readline() == b"in\n"
    refused = lab.run("-n", "-b", f"etcd://{member.place}", "NAME", "true")
    assert refused.returncode == 75


def test_flock_says_who_by_lslocks(lab: Lab, wrappers: dict[str, list[str]]) -> None:
    assert told("who has it")[0] == "`lslocks`"
    holder = lab.spawn([*wrappers["flock"], "sh", "-c", "echo in; exec sleep 60"])
    assert holder.stdout
    assert holder.stdout.readline() == b"in\n"
    shown = subprocess.run(
        ["lslocks", "--noheadings", "--output", "COMMAND,PATH"], capture_output=True, text=True, check=True
    )
    assert "flock" in shown.stdout


def test_flock_shares(lab: Lab) -> None:
    assert told("shared and exclusive")[0] == "`-s`, `-x`"
    shared = ["-s", str(lab.folder / "shared.lock")]
    done = run(lab, ["flock", *shared, "flock", "-n", *shared, "echo", "both"])
    assert done.stdout == "both\n"
