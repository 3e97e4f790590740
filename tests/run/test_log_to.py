"""``--log-to``: one line an event, to a file, syslog or systemd's journal; and that no log stops anybody."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from processes import Lab, renewer_of, wait_until
from servers import RedisServer

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def events(path: Path) -> list[dict[str, object]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def words(path: Path) -> list[object]:
    return [event["event"] for event in events(path)]


def to(path: Path, *more: str) -> list[str]:
    return ["--log-to", str(path), "--log-format", "json", *more]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


@contextmanager
def daemon(path: Path) -> Iterator[socket.socket]:
    """The socket of a syslog daemon or of journald."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(10)
        yield listener


# -- what is told ------------------------------------------------------------------------------------------------------


def test_a_run_as_text(lab: Lab) -> None:
    done = lab.run("--log-to", "log", "--label", 'a "b"', "my job", "sh", "-c", 'printf %s "$DISTLOCK_OWNER"; exit 3')
    assert (done.returncode, done.stderr) == (3, b"")
    granted, released = (lab.folder / "log").read_text().splitlines()
    owner, host = done.stdout.decode(), os.uname().nodename
    common = rf'lock="my job" backend={re.escape(lab.backend)} owner={owner} label="a \\"b\\""'
    assert re.fullmatch(rf"{TIME} {host} distlock\[\d+\]: granted {common} token=\d+ waited=[\d.]+", granted)
    assert re.fullmatch(rf"{TIME} {host} distlock\[\d+\]: released {common} token=\d+ held=[\d.]+ code=3", released)


def test_a_run_as_json(lab: Lab, log: Path) -> None:
    lab.run(*to(log), "job", "true")
    granted, released = events(log)
    assert list(granted) == ["time", "event", "lock", "backend", "owner", "token", "waited"]
    assert list(released) == ["time", "event", "lock", "backend", "owner", "token", "held", "code"]
    assert re.fullmatch(TIME, str(granted["time"]))
    assert granted["token"] == released["token"]


def test_who_waits_and_who_gave_up(lab: Lab, log: Path) -> None:
    holder = lab.start(*to(log), "job", "sleep", "60")
    wait_until(lambda: words(log))
    other = lab.folder / "other"
    assert lab.run(*to(other), "-w", "0.3", "job", "true").returncode == 75
    waiting, gave_up = events(other)
    assert (waiting["event"], waiting["holder"]) == ("waiting", f"{os.uname().nodename}:{holder.pid}")
    assert waiting["holder_token"] == events(log)[0]["token"]
    assert (gave_up["event"], gave_up["outcome"]) == ("not had", "busy")
    assert "not had within 300ms" in str(gave_up["reason"])
    lab.run(*to(other), "-n", "-b", "redis://127.0.0.1:1", "job", "true")
    assert events(other)[-1]["outcome"] == "unavailable"


@pytest.mark.parametrize("killed", ["nobody", "renewer"])
def test_a_lost_lease(lab: Lab, log: Path, killed: str) -> None:
    """Its lock's file is removed: the next renewal says so. Or the renewer dies, and the supervisor tells."""
    run = lab.start(*to(log), "--ttl", "3", "job", "sleep", "60")
    wait_until(lambda: words(log) == ["granted"])
    if killed == "renewer":
        os.kill(renewer_of(run.pid), signal.SIGKILL)
    else:
        for path in (lab.folder / "locks").iterdir():
            path.rename(lab.folder / path.name)
    assert run.wait(20) == 76
    told = words(log)
    assert told[:2] == ["granted", "lost"]
    assert "stopped" in told or killed == "renewer"
    assert "released" not in told
    lost = events(log)[1]
    assert lost["token"] == events(log)[0]["token"]
    assert lost["reason"]


def test_a_failed_renewal(lab: Lab, log: Path, tmp_path: Path) -> None:
    """Of a server that stands still for a while."""
    with RedisServer(tmp_path / "redis").running() as server:
        run = lab.start(*to(log), "-b", server.url, "--ttl", "9", "job", "sh", "-c", "read -r line <go")
        os.mkfifo(lab.folder / "go")
        wait_until(lambda: words(log) == ["granted"])
        server.freeze()
        try:
            wait_until(lambda: "renewal failed" in words(log))
        finally:
            server.thaw()
        (lab.folder / "go").write_text("x\n")
        assert run.wait(30) in (0, 1, 2)
    told = words(log)
    assert (told[0], told[-1]) == ("granted", "released")
    assert set(told[1:-1]) == {"renewal failed"}
    assert server.place in str(events(log)[1]["reason"])


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_rotated_file_is_let_go(lab: Lab, log: Path) -> None:
    run = lab.start(*to(log), "job", "sh", "-c", "read -r line <fifo")
    os.mkfifo(lab.folder / "fifo")
    wait_until(lambda: words(log) == ["granted"])
    log.rename(lab.folder / "log.1")
    (lab.folder / "fifo").write_text("go\n")
    assert run.wait(20) in (0, 1, 2)
    assert words(log) == ["released"]
    assert words(lab.folder / "log.1") == ["granted"]


def test_lines_of_many_runs_do_not_mix(lab: Lab, log: Path) -> None:
    runs = [lab.start(*to(log), "--label", "x" * 3000, f"job-{number}", "true") for number in range(8)]
    assert [run.wait(60) for run in runs] == [0] * 8
    wait_until(lambda: len(words(log)) == 16)
    assert sorted(map(str, words(log))) == ["granted"] * 8 + ["released"] * 8


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("", "is empty"),
        ("no/such/folder/log", "no such file or directory"),
        (".", "is a directory"),
        ("journal:/no/such/socket", "systemd-journald does not run here"),
        ("syslog:/no/such/socket", "no syslog daemon listens there"),
    ],
)
def test_a_log_that_cannot_be_written_starts_nothing(lab: Lab, target: str, said: str) -> None:
    done = lab.run("--log-to", target, "job", "touch", "started")
    line = done.stderr.decode()
    assert (done.returncode, line.count("\n")) == (78, 1)
    assert line.startswith("distlock: --log-to")
    assert said in line
    assert not (lab.folder / "started").exists()


def test_a_format_that_is_none(lab: Lab) -> None:
    done = lab.run("--log-format", "xml", "job", "true")
    assert (done.returncode, done.stderr) == (2, b"distlock: --log-format: 'xml' is none of text, json\n")


def test_a_log_of_the_configuration(lab: Lab) -> None:
    path = lab.folder / "etc/c.toml"
    path.parent.mkdir()
    path.write_text("[defaults]\nlog-to = 'log.jsonl'\nlog-format = 'json'\n")
    assert lab.run("--config", str(path), "job", "true").returncode == 0
    assert words(path.parent / "log.jsonl") == ["granted", "released"]
    path.write_text("[defaults]\nlog-to = 'no/such/log'\n")
    done = lab.run("--config", str(path), "job", "true")
    assert (done.returncode, b"[defaults] log-to: " in done.stderr) == (78, True)


@pytest.mark.parametrize("trouble", ["nobody reads the FIFO", "the disk is full"])
def test_a_log_that_fails_later_is_a_word_with_v(lab: Lab, trouble: str) -> None:
    """And harms nobody."""
    target = "/dev/full"
    if trouble == "nobody reads the FIFO":
        target = str(lab.folder / "fifo")
        os.mkfifo(target)
        reader = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
        run = lab.start("-v", "--log-to", target, "job", "sh", "-c", "read -r line <go")
        os.mkfifo(lab.folder / "go")
        wait_until(lambda: (lab.folder / "state/leases").is_dir() and os.listdir(lab.folder / "state/leases"))
        os.close(reader)
        (lab.folder / "go").write_text("x\n")
    else:
        run = lab.start("-v", "--log-to", target, "job", "sleep", "0.3")
    _, stderr = run.communicate(timeout=20)
    assert run.returncode in (0, 1, 2)
    told = [line for line in stderr.decode().splitlines() if "--log-to" in line]
    assert told[0].startswith(f"distlock: --log-to {target}: ")
    assert len(told) == 1


# -- daemons -----------------------------------------------------------------------------------------------------------


def test_syslog(lab: Lab, tmp_path: Path) -> None:
    with daemon(tmp_path / "dev-log") as listener:
        done = lab.run("--log-to", f"syslog:{tmp_path}/dev-log", "Ж", "sh", "-c", "echo $PPID")
        pid = int(done.stdout)
        granted, released = listener.recv(8192).decode(), listener.recv(8192).decode()
    stamp = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    assert re.fullmatch(rf"<30>{stamp} distlock\[{pid}\]: granted lock=Ж backend=.*", granted)
    assert re.fullmatch(rf"<30>{stamp} distlock\[{pid}\]: released lock=Ж .* code=0", released)


def test_the_journal_of_systemd(lab: Lab, tmp_path: Path) -> None:
    with daemon(tmp_path / "journal") as listener:
        lab.run("--log-to", f"journal:{tmp_path}/journal", "--label", "a\nMESSAGE=b", "job", "true")
        lines = listener.recv(8192).decode().splitlines()
    assert all(re.fullmatch(r"[A-Z][A-Z_]*=.*", line) for line in lines)
    fields = dict(line.split("=", 1) for line in lines)
    assert len(fields) == len(lines)
    assert fields["MESSAGE"].startswith("granted lock=job ")
    assert (fields["PRIORITY"], fields["SYSLOG_IDENTIFIER"]) == ("6", "distlock")
    assert (fields["DISTLOCK_EVENT"], fields["DISTLOCK_LOCK"]) == ("granted", "job")
    assert fields["DISTLOCK_LABEL"] == r"a\nMESSAGE=b"
    assert fields["DISTLOCK_TOKEN"].isdigit()


def test_a_daemon_that_does_not_read_stops_nobody(lab: Lab, tmp_path: Path) -> None:
    with daemon(tmp_path / "dev-log") as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
            filler.connect(str(tmp_path / "dev-log"))
            filler.setblocking(False)
            with suppress(BlockingIOError):
                while True:
                    filler.send(b"x" * 1000)
        start = time.monotonic()
        assert lab.run("--log-to", f"syslog:{tmp_path}/dev-log", "job", "true").returncode == 0
        assert time.monotonic() - start < 5
