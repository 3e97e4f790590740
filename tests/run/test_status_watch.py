"""``distlock status --watch``: at a real terminal, in a pipe, and with a backend that goes away."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from distlock.supervise import tree
from processes import DISTLOCK, Lab, wait_until
from servers import RedisServer
from terminals import Shell, Terminal

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
WATCH = [DISTLOCK, "status", "--watch", "--interval", "500ms"]


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", text)


@pytest.fixture
def held(lab: Lab) -> Lab:
    """A lab whose lock `nightly` is held."""
    run = lab.start("--label", "big", "nightly", "sh", "-c", "echo held; exec sleep 60")
    assert run.stdout
    assert run.stdout.readline() == b"held\n"
    return lab


def terminal(lab: Lab, *more: str) -> Terminal:
    return Terminal([*WATCH, *more], lab.environment | {"TERM": "xterm-256color"}, size=(20, 150))


# --- at a terminal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", ["q", "Q", "\x03"])
def test_a_key_ends_it_and_the_terminal_is_as_before(held: Lab, keys: str) -> None:
    with terminal(held) as screen:
        before = screen.settings()
        screen.read_until(ENTER)
        screen.read_until("nightly")
        assert screen.settings() != before  # keys come one by one, without an echo
        screen.press(keys)
        rest = screen.read_on()
        assert screen.wait() == 0
        assert screen.settings() == before
        assert LEAVE in rest
        assert rest.rindex(SHOW_CURSOR) > rest.rfind(HIDE_CURSOR)
        assert keys not in rest.replace("q ends", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_as_it_ends_others_but_the_terminal_is_as_before(held: Lab, number: signal.Signals) -> None:
    with terminal(held) as screen:
        before = screen.settings()
        screen.read_until("nightly")
        os.kill(screen.pid, number)
        rest = screen.read_on()
        assert screen.wait() == -number
        assert screen.settings() == before
        assert LEAVE in rest


def test_it_is_drawn_over_itself_and_never_cleared(held: Lab) -> None:
    with terminal(held) as screen:
        screen.read_until("nightly")
        frames = "".join(screen.read_until("nightly") for _ in range(3))
        screen.press("q")
        assert "\x1b[H" in frames
        assert not re.search(r"\x1b\[[0-3]?[JK]|\x1b\[\?1049", frames)


def test_it_follows_a_resize_at_once(held: Lab) -> None:
    with Terminal([*WATCH[:-1], "1h"], held.environment | {"TERM": "xterm"}, size=(20, 150)) as screen:
        assert "SINCE" in screen.read_until("nightly")
        screen.resize(20, 40)
        narrow = plain(screen.read_until("nightly"))
        assert "SINCE" not in narrow
        assert "STATE" in narrow
        assert "LEFT" in narrow
        screen.resize(20, 150)
        assert "SINCE" in screen.read_until("nightly")
        screen.press("q")
        assert screen.wait() == 0


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again(held: Lab) -> None:
    with Shell(held.environment | {"TERM": "xterm"}) as shell:
        shell.press(" ".join(WATCH) + "\n")
        shell.read_until("nightly")
        shell.press("\x1a")
        shell.read_until(LEAVE)
        assert shell.prompt() == 128 + signal.SIGSTOP
        assert "still here" in shell.command("echo still' 'here")[0]
        shell.press("fg\n")
        shell.read_until(ENTER)
        shell.read_until("nightly")
        shell.press("q")
        assert shell.prompt() == 0


def test_an_expiring_lease_stands_out(lab: Lab) -> None:
    run = lab.start("--ttl", "12", "job", "sh", "-c", "echo held; exec sleep 60")
    assert run.stdout
    assert run.stdout.readline() == b"held\n"
    with terminal(lab) as screen:
        assert "1 held" in screen.read_until("sh")
        for process in [run.pid, *(one.pid for one in tree.descendants(run.pid, frozenset()))]:
            os.kill(process, signal.SIGSTOP)
        screen.read_until("\x1b[1;7;31m1 expiring")
        screen.read_until("\x1b[1;7;31mexpiring")
        screen.press("q")


def test_a_dumb_terminal_gets_tables(held: Lab) -> None:
    with Terminal(WATCH, held.environment | {"TERM": "dumb"}, size=(20, 150)) as screen:
        seen = screen.read_until("nightly") + screen.read_until("nightly")
        screen.press("\x03")
        assert screen.wait() == 0
        assert "\x1b[?" not in seen


def test_more_locks_than_lines(lab: Lab) -> None:
    for number in range(8):
        assert lab.run("--min-hold", "60s", f"lock-{number}", "true").returncode == 0
    with Terminal(WATCH, lab.environment | {"TERM": "xterm"}, size=(9, 80)) as screen:
        shown = plain(screen.read_until("q ends"))
        shown += plain(screen.read_until("q ends"))
        screen.press("q")
        assert "8 kept" in shown
        assert "4 more" in shown


def test_without_a_keyboard_it_says_what_ends_it(held: Lab) -> None:
    line = [*(f"'{word}'" for word in WATCH), "</dev/null"]
    with Terminal(
        ["sh", "-c", f"exec {' '.join(line)}"], held.environment | {"TERM": "xterm"}, size=(20, 150)
    ) as screen:
        screen.read_until("Ctrl-C ends")
        screen.press("\x03")
        assert screen.wait() == 0


def test_a_terminal_that_hangs_up_ends_it(held: Lab) -> None:
    with terminal(held) as screen:
        screen.read_until("nightly")
        screen.hang_up()
        assert screen.wait() == -signal.SIGHUP


# --- in a pipe ------------------------------------------------------------------------------------------------------


def piped(lab: Lab, *more: str) -> subprocess.Popen[bytes]:
    return lab.spawn([*WATCH, *more])


def test_tables_one_after_another_each_with_its_time(held: Lab) -> None:
    watch = piped(held)
    assert watch.stdout
    for _ in range(2):
        assert re.fullmatch(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  local:\S+\n", watch.stdout.readline())
        assert watch.stdout.readline().startswith(b"NAME     STATE")
        assert watch.stdout.readline().startswith(b"nightly  held")
        assert watch.stdout.readline() == b"\n"
    watch.send_signal(signal.SIGINT)
    assert watch.wait(10) == 0


def test_one_json_document_a_line(held: Lab) -> None:
    watch = piped(held, "--json")
    assert watch.stdout
    for _ in range(2):
        document = json.loads(watch.stdout.readline())
        assert set(document) == {"version", "at", "backend", "locks"}
        assert [lock["name"] for lock in document["locks"]] == ["nightly"]
    watch.send_signal(signal.SIGTERM)
    assert watch.wait(10) == -signal.SIGTERM


def test_patterns_and_all_hold_for_each_look(held: Lab) -> None:
    assert held.run("done", "true").returncode == 0
    for more, names in ((["none-*"], []), (["d*", "--all"], ["done"])):
        watch = piped(held, "--json", *more)
        assert watch.stdout
        assert [lock["name"] for lock in json.loads(watch.stdout.readline())["locks"]] == names
        watch.kill()


def test_it_ends_with_its_reader_and_not_at_the_next_look(held: Lab) -> None:
    watch = held.spawn([*WATCH[:-1], "1h"])
    assert watch.stdout
    watch.stdout.readline()
    watch.stdout.close()
    assert watch.wait(10) == 0


def test_nohup_keeps_it_from_a_hang_up(held: Lab) -> None:
    watch = held.spawn(["nohup", *WATCH])
    assert watch.stdout
    watch.stdout.readline()
    watch.send_signal(signal.SIGHUP)
    for _ in range(5):
        assert watch.stdout.readline()
    assert watch.poll() is None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--interval", "2s"], "--interval goes with --watch"),
        (["--watch", "--interval", "100ms"], "--interval '100ms': from 500ms to 1h"),
        (["--watch", "--interval", "2h"], "--interval '2h': from 500ms to 1h"),
        (["--watch", "--interval", "often"], "--interval: 'often'"),
    ],
)
def test_intervals_without_sense(lab: Lab, arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [DISTLOCK, "status", *arguments], env=lab.environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"distlock: {words}")


# --- with a backend that goes away ----------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    one = RedisServer(tmp_path / "redis")
    one.start()
    yield one
    one.kill()


def test_a_backend_that_goes_away_is_one_line_and_is_asked_again(server: RedisServer, tmp_path: Path) -> None:
    lab = Lab(tmp_path, server.url)
    watch = piped(lab, "--json")
    assert watch.stdout
    assert watch.stderr
    assert json.loads(watch.stdout.readline())["locks"] == []
    server.kill()
    gone = watch.stderr.readline().decode()
    assert gone.startswith("distlock: ")
    assert server.place in gone
    assert gone.endswith("; trying again every 500ms\n")
    server.start()
    assert watch.stderr.readline() == b"distlock: the backend answers again\n"
    assert json.loads(watch.stdout.readline())["locks"] == []
    lab.close()


def test_on_a_terminal_it_is_one_line_above_what_was_seen_last(server: RedisServer, tmp_path: Path) -> None:
    lab = Lab(tmp_path, server.url)
    run = lab.start("nightly", "sleep", "60")
    wait_until(lambda: server.command("EXISTS", "lock:nightly"))
    with terminal(lab) as screen:
        screen.read_until("nightly")
        server.kill()
        frame = plain(screen.read_until("what follows is of") + screen.read_until("nightly"))
        assert sum(server.place in line and "what follows" in line for line in frame.splitlines()) == 1
        server.start()
        screen.read_until("no lock is held")
        screen.press("q")
        assert screen.wait() == 0
    run.kill()
    lab.close()


def test_q_waits_for_no_backend(server: RedisServer, tmp_path: Path) -> None:
    lab = Lab(tmp_path, server.url)
    with terminal(lab) as screen:
        screen.read_until("no lock is held")
        server.freeze()
        screen.press("q")
        assert screen.wait(3) == 0


def test_what_needs_a_repair_ends_it(lab: Lab) -> None:
    done = subprocess.run(
        [*WATCH, "-b", "nonsense://h"], env=lab.environment, capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 78
    assert done.stderr.startswith("distlock: ")
    assert len(done.stderr.splitlines()) == 1
