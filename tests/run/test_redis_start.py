"""Getting a lock on Redis, or not: codes, one line, nothing started, nothing left, no secret shown."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import redis

import redis_fixtures
from certificates import authority, certificate
from processes import Lab, renewer_of, wait_until
from proxy import Proxy
from redis_fixtures import keys, marks_key, token_key
from servers import RedisServer, free_port, unread

SECRET = "hunter2"


one_server = redis_fixtures.one_server
server = redis_fixtures.emptied_server
lab = redis_fixtures.lab


def refused(lab: Lab, url: str, code: int, words: str, *options: str, seconds: float = 20.0) -> None:
    """The run ends with this code and one line; nothing was started."""
    mark = lab.folder / "mark"
    start = time.monotonic()
    done = lab.run(*options, "job", "--", "touch", str(mark), environment={"DISTLOCK_BACKEND": url}, seconds=seconds)
    assert time.monotonic() - start < seconds
    text = done.stderr.decode()
    assert (done.returncode, done.stdout, text.count("\n")) == (code, b"", 1), text
    assert text.startswith("distlock: ")
    assert words in text
    assert SECRET not in text
    assert not mark.exists()


def test_a_run_leaves_only_the_token(lab: Lab, server: RedisServer) -> None:
    done = lab.run("job", "--", "sh", "-c", "echo $DISTLOCK_FENCING_TOKEN; exit 9")
    assert (done.returncode, done.stderr) == (9, b"")
    assert keys(server) == {token_key("job"): -1}
    assert server.command("GET", token_key("job")) == b"1:" + done.stdout.strip()
    wait_until(lambda: server.command("INFO", "clients")["connected_clients"] == 1)


@pytest.mark.parametrize("options", [["-n"], ["-w", "0.3"]])
def test_a_conflict_leaves_nothing(lab: Lab, server: RedisServer, options: list[str]) -> None:
    server.command("SET", "lock:job", "x", "PX", 60000)
    done = lab.run(*options, "job", "--", "true")
    assert done.returncode == 75
    expected = "" if options == ["-n"] else "distlock: 'job': not had within 300ms: held by somebody unknown\n"
    assert done.stderr.decode() == expected
    assert set(keys(server)) == {"lock:job"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_while_waiting_leaves_nothing(lab: Lab, server: RedisServer, number: signal.Signals) -> None:
    server.command("SET", "lock:job", "x", "PX", 60000)
    run = lab.start("job", "--", "true")
    wait_until(lambda: server.command("ZCARD", "distlock:{lock:job}:queue") == 1)
    renewer = renewer_of(run.pid)
    start = time.monotonic()
    run.send_signal(number)
    assert run.wait(5) == -number
    assert time.monotonic() - start < 1.0
    wait_until(lambda: set(keys(server)) == {"lock:job"}, 1.0)
    wait_until(lambda: not os.path.exists(f"/proc/{renewer}"))


def test_a_signal_while_the_server_hangs(lab: Lab, server: RedisServer) -> None:
    server.command("SET", "lock:job", "x", "PX", 60000)
    run = lab.start("job", "--", "true")
    wait_until(lambda: server.command("ZCARD", "distlock:{lock:job}:queue") == 1)
    server.freeze()
    try:
        wait_until(lambda: unread(server.port), what="a request that is not answered")
        start = time.monotonic()
        run.terminate()
        assert run.wait(5) == -signal.SIGTERM
        assert time.monotonic() - start < 1.0
    finally:
        server.thaw()
    wait_until(lambda: set(keys(server)) == {"lock:job"}, 11)


def test_nothing_listens(lab: Lab) -> None:
    place = f"127.0.0.1:{free_port()}"
    refused(lab, f"redis://:{SECRET}@{place}", 69, f"{place} is not reached: Connection refused", "-n", seconds=3)
    refused(lab, f"redis://:{SECRET}@{place}", 69, f"{place} is not reached", "-w", "1.5", seconds=4)


def test_a_server_that_hangs(lab: Lab, server: RedisServer) -> None:
    server.freeze()
    try:
        refused(lab, server.url, 69, f"{server.place} does not answer", "-n", seconds=5)
        refused(lab, server.url, 69, f"{server.place} does not answer", "-w", "1", seconds=6)
        refused(lab, server.url, 69, f"{server.place} does not answer", seconds=16)
    finally:
        server.thaw()
    wait_until(lambda: server.command("INFO", "clients")["connected_clients"] == 1)  # all that was sent is dealt with
    assert keys(server) == {}


def test_packets_that_are_dropped(lab: Lab, server: RedisServer) -> None:
    with Proxy(server.port) as proxy:
        proxy.black_hole()
        refused(lab, f"redis://127.0.0.1:{proxy.port}", 69, "does not answer", "-n", seconds=5)


def test_a_server_that_comes_while_we_wait(lab: Lab, tmp_path: Path) -> None:
    """Refusing at first, then loading its data: both are waited out."""
    late = RedisServer(tmp_path / "late")
    with late.running():
        late.command("DEBUG", "POPULATE", 1000, "key", 1000)
        late.command("SAVE")
        late.kill()
        run = lab.start("-w", "9", "job", "--", "true", environment={"DISTLOCK_BACKEND": late.url})
        renewer_of(run.pid)
        late.start("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024", ready=False)
        assert run.wait(12) == 0


def test_wrong_password(lab: Lab, server: RedisServer) -> None:
    server.command("CONFIG", "SET", "requirepass", "right")
    try:
        for url in (f"redis://:{SECRET}@{server.place}", f"redis://someone:{SECRET}@{server.place}"):
            refused(lab, url, 77, f"{server.place} refuses the user or password", seconds=3)
        refused(lab, server.url, 77, f"{server.place} wants a password", seconds=3)
    finally:
        with redis.Redis(unix_socket_path=str(server.socket), password="right") as client:
            client.config_set("requirepass", "")


def test_a_password_is_seen_nowhere(lab: Lab, server: RedisServer) -> None:
    """Neither in a process list nor in the lease file."""
    server.command("ACL", "SETUSER", "job", "on", f">{SECRET}", "~*", "&*", "+@all")
    backend = {"DISTLOCK_BACKEND": f"redis://job:{SECRET}@{server.place}"}
    command = ["sh", "-c", "cat $DISTLOCK_LEASE; echo; exec sleep 60"]
    run = lab.start("-vv", "job", "--", *command, environment=backend)
    assert run.stdout
    lease = run.stdout.readline().decode()
    assert f"redis://job:***@{server.place}" in lease
    assert SECRET not in lease
    for pid in (run.pid, renewer_of(run.pid)):
        assert SECRET.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    run.terminate()
    _, stderr = run.communicate(timeout=5)
    assert SECRET.encode() not in stderr


@pytest.mark.parametrize("password", [SECRET, "a b/@:%\xe4", b"\xff\xfe"])
def test_a_password_from_the_environment(lab: Lab, server: RedisServer, password: str | bytes) -> None:
    """It reaches the server and not the command; one in the URL comes first."""
    plain = os.fsdecode(password)
    server.command("ACL", "SETUSER", "job", "reset", "on", b">" + os.fsencode(password), "~*", "&*", "+@all")
    given = {"DISTLOCK_BACKEND": f"redis://job@{server.place}", "DISTLOCK_PASSWORD": plain}
    done = lab.run("job", "--", "sh", "-c", "env | grep -c DISTLOCK_PASSWORD", environment=given)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"0\n", b"")
    assert lab.run("job", "--", "true", environment={**given, "DISTLOCK_PASSWORD": ""}).returncode == 77
    in_url = {"DISTLOCK_BACKEND": f"redis://job:wrong@{server.place}", "DISTLOCK_PASSWORD": plain}
    assert lab.run("job", "--", "true", environment=in_url).returncode == 77


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"redis://job:{SECRET}@127.0.0.1?socket_timeout=5", "unknown query key 'socket_timeout'"),
        (f"redis://job:{SECRET}/@127.0.0.1", "are written %2F"),
        (f"redis://job:{SECRET}@127.0.0.1:x", "HOST:PORT"),
        (f"rediss://job:{SECRET}@127.0.0.1?ca=/none", "ca= names no file"),
    ],
)
def test_a_url_that_cannot_work(lab: Lab, url: str, words: str) -> None:
    refused(lab, url, 78, words, seconds=3)


def test_tls(lab: Lab, tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    another = authority(tmp_path / "another")
    pem, key = certificate(ca, "server", "IP:127.0.0.1")
    files = ("--tls-cert-file", str(pem), "--tls-key-file", str(key), "--tls-auth-clients", "no")
    with RedisServer(tmp_path / "tls", tls=(*files, "--tls-ca-cert-file", str(ca))).running() as secure:
        assert lab.run("-b", f"{secure.url}?ca={ca}", "job", "--", "sh", "-c", "exit 5").returncode == 5
        refused(lab, f"{secure.url}?ca={another}", 77, "certificate that does not pass", seconds=3)
        refused(lab, secure.url, 77, "certificate that does not pass", seconds=3)


@pytest.mark.parametrize("name", ["замок/1", "鍵", "a b*?", "x" * 200])
def test_names_are_the_same_in_every_locale(lab: Lab, server: RedisServer, name: str) -> None:
    for locale in ("C", "C.UTF-8", "POSIX"):
        done = lab.run(name, "--", "sh", "-c", "sleep 0", environment={"LC_ALL": locale})
        assert (done.returncode, done.stderr) == (0, b"")
        found = keys(server)
        assert set(found) == {token_key(name), marks_key(name)}
        assert found[token_key(name)] == -1
    server.command("SET", f"lock:{name}", "x", "PX", 60000)
    for locale in ("C", "C.UTF-8"):
        assert lab.run("-n", name, "--", "true", environment={"LC_ALL": locale}).returncode == 75


def test_arguments_are_passed_untouched(lab: Lab) -> None:
    words = ["a b", "", "'", '"', "$HOME", "*", "new\nline", "--ttl", "\\"]
    done = lab.run("job", "--", "printf", "%s\\0", *words)
    assert done.stdout.decode().split("\0")[:-1] == words
