"""At a terminal, below an interactive shell: keys, job control, reading. Nearly every test runs the same command alone
as well, so that what it expects is what a terminal does and not what we believe it does."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock.clock import boottime
from distlock.supervise import tree
from processes import DISTLOCK, Lab, is_alive, wait_until
from terminals import Shell

BEHIND = "distlock run n "
CTRL_C, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x1a", "\x1c"

COMMANDS = {
    "sleeper": "echo $$ >pid; echo ready; exec sleep 60",
    "reader": 'echo $$ >pid; echo ready; read -r line; echo "got $line"; exit 7',
    "silent": 'read -r line; echo "got $line"; exit 7',
    "asker": 'echo ready >&2; read -r line </dev/tty; echo "got $line"',
    "deaf": "trap '' INT; echo ready; read -r line; echo \"got $line\"; exit 7",
    "modes": "stty -echo; stty -a | grep -ow -e -echo; stty echo; stty -a | grep -ow echo; exit 7",
}
COUNTER = r"""
import os, signal
names = []
def count(number, frame):
    names.append(signal.Signals(number).name)
    os.write(1, b"seen %s\n" % names[-1].encode())  # print is not made for handlers
def tell(number, frame):
    os.write(1, b"counted %s\n" % " ".join(names).encode())
    os._exit(7)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, count)
signal.signal(signal.SIGUSR1, tell)
os.write(1, b"ready\n")
while True:
    signal.pause()
"""
"""A child that counts what it gets until USR1 comes. Sent to the wrapper, that one is forwarded behind all others."""


@pytest.fixture
def shell(lab: Lab) -> Iterator[Shell]:
    for name, script in COMMANDS.items():
        _program(lab.folder / name, f"#!/bin/sh\n{script}\n")
    python = Path(DISTLOCK).with_name("python")
    _program(lab.folder / "counter", f"#!{python} -IS\n{COUNTER}")
    path = f"{Path(DISTLOCK).parent}:{lab.environment['PATH']}"
    with Shell({**lab.environment, "PATH": path, "LC_ALL": "C.UTF-8"}) as made:
        assert made.command("cd") == ("", 0)
        yield made


@pytest.fixture(params=["", BEHIND], ids=["alone", "behind distlock"])
def before(request: pytest.FixtureRequest) -> str:
    """What stands before the command."""
    word: str = request.param
    return word


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def start(shell: Shell, line: str, until: str = "ready\r\n") -> None:
    shell.press(f"{line}\n")
    shell.read_until(until)


def stat(pid: int) -> list[str]:
    """From /proc/PID/stat, from the third on: state, parent, group, session, terminal, its group in front."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def states(shell: Shell) -> set[str]:
    """The states, as ps(1) writes them, of the shell's job: all of its process group, but for a child that waits for
    the lock: that is held by the supervisor and not by the terminal."""
    group = [process.pid for process in tree.in_group(os.getpgid(shell.job()))]
    return {stat(pid)[0] for pid in group if Path(f"/proc/{pid}/comm").read_text() != "distlock-parked\n"}


def await_in_front(shell: Shell, command: str) -> None:
    """Until the command has the terminal and all of its process group runs. bash prints the line of ``fg`` before it
    gives the terminal away and continues the job: keys in between are nobody's, and a stop is undone by the CONT."""

    def look() -> bool:
        group = tree.in_group(int(stat(shell.pid)[5]))
        words = [Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")[-2] for process in group]
        return command in words and all(stat(process.pid)[0] == "S" for process in group)

    wait_until(look, what=f"{command} in front")


def bring_to_front(shell: Shell, before: str, command: str) -> None:
    start(shell, "fg", f"{before}{command}\r\n")
    await_in_front(shell, command)


def lease_deadline(lab: Lab) -> float:
    (path,) = Path(lab.environment["DISTLOCK_STATE_DIR"], "leases").glob("*.json")
    found: float = json.loads(path.read_text())["hard_deadline_boottime"]
    return found


# --- keys -----------------------------------------------------------------------------------------------------------


def test_control_c_ends_it(shell: Shell, before: str) -> None:
    start(shell, f"{before}./sleeper")
    shell.press(CTRL_C)
    assert shell.transcript() == ("^C\r\n", 130)


def test_control_backslash_ends_it(shell: Shell, before: str) -> None:
    assert shell.command("ulimit -c 0") == ("", 0)
    start(shell, f"{before}./sleeper")
    shell.press(CTRL_BACKSLASH)
    assert shell.transcript() == ("^\\Quit\r\n", 131)


def test_control_c_comes_once_each_time(shell: Shell, before: str) -> None:
    start(shell, f"{before}./counter")
    for _ in range(2):
        shell.press(CTRL_C)
        shell.read_until("seen SIGINT\r\n")
    os.kill(shell.job(), signal.SIGUSR1)
    assert shell.transcript() == ("counted SIGINT SIGINT\r\n", 7)


def test_control_c_aborts_the_script_around_it(shell: Shell, lab: Lab, before: str) -> None:
    _program(lab.folder / "script", f"#!/bin/bash\n{before}./sleeper\necho the script went on\n")
    start(shell, "./script")
    shell.press(CTRL_C)
    assert shell.transcript() == ("^C\r\n", 130)


def test_a_command_that_ignores_control_c_is_waited_for(shell: Shell, before: str) -> None:
    start(shell, f"{before}./deaf")
    shell.press(CTRL_C)
    shell.press("hello\n")
    output, code = shell.transcript()
    assert output.endswith("got hello\r\n")
    assert code == 7


def test_the_lock_is_free_after_control_c(shell: Shell, lab: Lab) -> None:
    start(shell, f"{BEHIND}./sleeper")
    assert lab.run("-n", "n", "true").returncode == 75
    shell.press(CTRL_C)
    assert shell.prompt() == 130
    assert lab.run("-n", "n", "true").returncode == 0


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "QUIT"])
@pytest.mark.parametrize("background", ["", " &"], ids=["in front", "in the background"])
def test_a_signal_from_elsewhere_comes_once(shell: Shell, before: str, background: str, name: str) -> None:
    start(shell, f"{before}./counter{background}")
    os.kill(shell.job(), signal.Signals[f"SIG{name}"])
    shell.read_until(f"seen SIG{name}\r\n")
    os.kill(shell.job(), signal.SIGUSR1)
    shell.read_until(f"counted SIG{name}\r\n")


# --- job control ----------------------------------------------------------------------------------------------------


def test_control_z_jobs_and_fg(shell: Shell, before: str) -> None:
    start(shell, f"{before}./reader")
    shell.press(CTRL_Z)
    output, code = shell.transcript()
    assert (output.replace(before, ""), code) == ("^Z\r\n[1]+  Stopped                 ./reader\r\n", 148)
    wait_until(lambda: states(shell) == {"T"}, what="all of the job stopped")
    output, code = shell.command("jobs")
    assert (output.replace(before, ""), code) == ("[1]+  Stopped                 ./reader\r\n", 0)
    bring_to_front(shell, before, "./reader")
    shell.press("hello\n")
    assert shell.transcript() == ("hello\r\ngot hello\r\n", 7)
    assert shell.command("jobs") == ("", 0)


def test_control_z_again_and_again(shell: Shell, before: str) -> None:
    start(shell, f"{before}./reader")
    for _ in range(3):
        shell.press(CTRL_Z)
        shell.read_until("Stopped")
        shell.prompt()
        bring_to_front(shell, before, "./reader")
    shell.press("hello\n")
    assert shell.transcript() == ("hello\r\ngot hello\r\n", 7)


def test_control_c_after_fg(shell: Shell, before: str) -> None:
    start(shell, f"{before}./counter")
    shell.press(CTRL_Z)
    shell.prompt()
    bring_to_front(shell, before, "./counter")
    shell.press(CTRL_C)
    shell.read_until("seen SIGINT\r\n")
    os.kill(shell.job(), signal.SIGUSR1)
    assert shell.transcript() == ("counted SIGINT\r\n", 7)


def test_bg_after_control_z(shell: Shell, before: str) -> None:
    start(shell, f"{before}./counter")
    shell.press(CTRL_Z)
    shell.prompt()
    output, code = shell.command("bg")
    assert (output.replace(before, ""), code) == ("[1]+ ./counter &\r\n", 0)
    os.kill(shell.job(), signal.SIGUSR1)
    shell.read_until("counted \r\n")


def test_a_reader_in_the_background_stops_and_reads_in_front(shell: Shell, before: str) -> None:
    start(shell, f"{before}./silent &", "]> ")
    wait_until(lambda: states(shell) == {"T"}, what="the job stopped by its reading")
    assert "Stopped (tty input)" in shell.command("jobs -l")[0]
    bring_to_front(shell, before, "./silent")
    shell.press("hello\n")
    assert shell.transcript() == ("hello\r\ngot hello\r\n", 7)


def test_the_lease_is_kept_while_the_command_is_suspended(shell: Shell, lab: Lab) -> None:
    start(shell, "distlock run --ttl 3 n ./reader")
    shell.press(CTRL_Z)
    shell.read_until("Stopped")
    shell.prompt()
    suspended = boottime()
    # A hard deadline lies about 2.5 s behind its renewal: this one came more than a TTL after the suspension.
    wait_until(lambda: lease_deadline(lab) > suspended + 3 + 2.5, what="renewals for more than a TTL")
    assert states(shell) == {"T"}
    assert lab.run("-n", "n", "true").returncode == 75
    bring_to_front(shell, "", "./reader")
    shell.press("hello\n")
    assert shell.transcript() == ("hello\r\ngot hello\r\n", 7)
    assert lab.run("-n", "n", "true").returncode == 0


def test_a_shell_below_has_job_control_of_its_own(shell: Shell, before: str) -> None:
    start(shell, f"{before}bash --norc -i", "]> ")
    start(shell, "./reader")
    shell.press(CTRL_Z)
    assert shell.transcript() == ("^Z\r\n[1]+  Stopped                 ./reader\r\n", 148)
    bring_to_front(shell, "", "./reader")
    shell.press("hello\n")
    assert shell.transcript() == ("hello\r\ngot hello\r\n", 7)
    assert shell.command("exit 3") == ("exit\r\n", 3)
    assert shell.command("jobs") == ("", 0)


def test_a_shell_below_that_suspends_itself(shell: Shell, before: str) -> None:
    start(shell, f"{before}bash --norc -i", "]> ")
    shell.press("suspend\n")
    output, code = shell.transcript()
    assert output.replace(before, "").endswith("[1]+  Stopped                 bash --norc -i\r\n")
    assert code == 147
    start(shell, "fg", "]> ")
    assert shell.command("exit 3") == ("exit\r\n", 3)


# --- reading and modes ----------------------------------------------------------------------------------------------


def test_reading_from_the_terminal(shell: Shell, before: str) -> None:
    start(shell, f"{before}./reader")
    shell.press("hello\n")
    assert shell.transcript() == ("hello\r\ngot hello\r\n", 7)


def test_the_end_of_input_from_the_terminal(shell: Shell, before: str) -> None:
    start(shell, f"{before}cat", "cat\r\n")
    await_in_front(shell, "cat")
    shell.press("hello\n\x04")
    assert shell.transcript() == ("hello\r\nhello\r\n", 0)


def test_reading_from_the_terminal_inside_a_pipeline(shell: Shell, before: str) -> None:
    start(shell, f"{before}./asker | cat")
    shell.press("hello\n")
    assert shell.transcript() == ("hello\r\ngot hello\r\n", 0)


def test_modes_of_the_terminal(shell: Shell, before: str) -> None:
    assert shell.command(f"{before}./modes") == ("-echo\r\necho\r\n", 7)


# --- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "line", "code"),
    [("TERM", "Terminated\r\n", 143), ("KILL", "Killed\r\n", 137), ("INT", "", 130), ("PIPE", "", 141)],
)
def test_a_death_is_reported_as_ever(shell: Shell, before: str, name: str, line: str, code: int) -> None:
    assert shell.command(f"{before}sh -c 'kill -{name} $$'") == (line, code)


def test_a_hang_up_ends_the_command(shell: Shell, lab: Lab, before: str) -> None:
    start(shell, f"{before}./sleeper")
    job, child = shell.job(), int((lab.folder / "pid").read_text())
    shell.hang_up()
    wait_until(lambda: not is_alive(child) and not is_alive(job), what="the end of the command")
    if before:
        wait_until(lambda: lab.run("-n", "n", "true").returncode == 0, what="the lock given back")


# --- waiting for a lock ---------------------------------------------------------------------------------------------


@pytest.fixture
def holder(lab: Lab) -> Path:
    """Somebody else holds the lock until something is written to this fifo."""
    end = lab.folder / "end"
    os.mkfifo(end)
    process = lab.start("n", "sh", "-c", "echo held; read -r line <end")
    assert process.stdout
    assert process.stdout.readline() == b"held\n"
    return end


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize(("key", "code"), [(CTRL_C, 130), (CTRL_BACKSLASH, 131)])
def test_a_key_ends_the_waiting(shell: Shell, lab: Lab, key: str, code: int) -> None:
    start(shell, "distlock run -v n touch started", "distlock: waiting: ")
    wait_until(lambda: lab.waiters() == 1)
    shell.press(key)
    assert shell.prompt() == code
    assert lab.waiters() == 0
    assert not (lab.folder / "started").exists()


def test_control_z_while_waiting(shell: Shell, lab: Lab, holder: Path) -> None:
    start(shell, "distlock run -v n ./reader", "distlock: waiting: ")
    shell.press(CTRL_Z)
    shell.read_until("Stopped")
    assert shell.prompt() == 148
    assert states(shell) == {"T"}
    bring_to_front(shell, "", "./reader")
    wait_until(lambda: lab.waiters() == 1)
    holder.write_text("now\n")
    shell.read_until("ready\r\n")
    shell.press("hello\n")
    assert shell.transcript() == ("hello\r\ngot hello\r\n", 7)


def test_a_lock_that_comes_free_while_the_waiter_is_suspended(shell: Shell, lab: Lab, holder: Path) -> None:
    """It is had in its turn, and kept until the command can start."""
    start(shell, "distlock run -v n ./reader", "distlock: waiting: ")
    wait_until(lambda: lab.waiters() == 1)
    shell.press(CTRL_Z)
    shell.read_until("Stopped")
    shell.prompt()
    holder.write_text("now\n")
    wait_until(lambda: lab.waiters() == 0)
    assert lab.run("-n", "n", "true").returncode == 75
    start(shell, "fg")
    shell.press("hello\n")
    assert shell.transcript() == ("hello\r\ngot hello\r\n", 7)
