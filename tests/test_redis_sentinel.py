"""Finding the master: what sentinels say or do not say, who is let in, and what is no sentinel at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from certificates import authority, certificate
from contenders import acquire, environment, request, take, try_once
from distlock.backends import open_backend
from distlock.backends.base import ConfigurationError, Mark, Refused, Unavailable
from distlock.clock import boottime
from processes import Lab, wait_until
from redis_fixtures import marks_key
from redis_groups import SERVICE, Watched, watched
from servers import HOST, RedisServer, free_port

SECRET = "hunter2"


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watched(tmp_path_factory.mktemp("sentinel") / "group", sentinels=2, down_after=30.0) as one:
        yield one


def test_the_lock_is_at_the_master(group: Watched) -> None:
    backend = open_backend(group.url, environment())
    take(backend, "n", owner="me")
    assert group.servers[0].command("GET", "lock:n") == b"me"
    wait_until(lambda: group.servers[1].command("GET", "lock:n") == b"me")
    backend.close()


def test_a_database(group: Watched) -> None:
    backend = open_backend(f"{group.url}/3", environment())
    take(backend, "third")
    assert group.servers[0].command("EXISTS", "lock:third") == 0
    assert group.servers[0].command("INFO", "keyspace")["db3"]["keys"] == 3
    backend.close()


def test_sentinels_that_are_dead_or_silent_are_passed(group: Watched) -> None:
    url = f"redis+sentinel://{HOST}:{free_port()},{group.places}/{SERVICE}"
    backend = open_backend(url, environment())
    backend.release(take(backend, "n1"), 5.0)
    group.sentinels[0].freeze()
    try:
        start = boottime()
        with backend.enqueue(request("n1", 30.0)) as ticket:
            assert acquire(ticket)
        assert boottime() - start < 1.5
        backend.close()
        backend = open_backend(url, environment())
        start = boottime()
        take(backend, "n2")
        assert boottime() - start < 1.5
    finally:
        group.sentinels[0].thaw()
        backend.close()


def test_no_sentinel_answers() -> None:
    ports = free_port(), free_port()
    backend = open_backend(f"redis+sentinel://{HOST}:{ports[0]},{HOST}:{ports[1]}/{SERVICE}", environment())
    start = boottime()
    with pytest.raises(Unavailable, match=rf"no sentinel names a master of .*/{SERVICE}: .* is not reached: Conn"):
        try_once(backend, "n", ttl=3.0)
    assert boottime() - start < 1.5


def test_a_waiter_gets_no_lock_without_a_sentinel(tmp_path: Path) -> None:
    """It could not know whether the master that it has found is still the master."""
    with watched(tmp_path / "group", sentinels=1, down_after=30.0) as group:
        backend = open_backend(group.url, environment())
        held = take(backend, "n")
        with backend.enqueue(request("n", 3.0)) as ticket:
            assert ticket.poll() is None
            group.sentinels[0].kill()
            held = backend.renew(held, 2.0)
            backend.release(held, 2.0)
            with pytest.raises(Unavailable, match="no sentinel names a master"):
                ticket.poll()
        backend.close()


@pytest.mark.parametrize("how", ["mark", "release"])
def test_what_a_holder_leaves_goes_to_the_new_master(tmp_path: Path, how: str) -> None:
    """Though the old one, which does not know yet that it was replaced, would take it."""
    with watched(tmp_path / "group", sentinels=1, down_after=30.0) as group:
        backend = open_backend(group.url, environment())
        held = take(backend, "n")
        group.replicated()
        old, new = group.servers
        new.command("REPLICAOF", "NO", "ONE")
        group.sentinels[0].command("SENTINEL", "REMOVE", SERVICE)
        group.sentinels[0].command("SENTINEL", "MONITOR", SERVICE, HOST, new.port, 1)
        if how == "mark":
            backend.mark(held, Mark("key", 0.0, 60.0), 5.0)
        else:
            backend.release(held, 5.0, (Mark("key", 0.0, 60.0),))
            assert new.command("EXISTS", "lock:n") == 0
        assert [one.command("EXISTS", marks_key("n")) for one in (old, new)] == [0, 1]
        assert backend.marked("n", "key", 5.0)
        backend.close()


def test_a_master_that_no_sentinel_knows(group: Watched) -> None:
    backend = open_backend(f"redis+sentinel://{group.places}/nothing", environment())
    with pytest.raises(ConfigurationError, match=r"^the sentinels at .*/nothing know no master of that name$"):
        try_once(backend, "n")
    backend.close()


def test_a_redis_that_is_no_sentinel(group: Watched) -> None:
    backend = open_backend(f"redis+sentinel://{group.servers[0].place}/{SERVICE}", environment())
    with pytest.raises(
        Unavailable, match=f"no sentinel names a master .*: {group.servers[0].place} is no sentinel"
    ) as no:
        try_once(backend, "n", ttl=3.0)
    assert no.value.permanent
    backend.close()


def test_a_sentinel_that_names_a_replica(tmp_path: Path, group: Watched) -> None:
    """As one does that has not heard of a failover yet: what counts is what the server says of itself."""
    with watched(tmp_path / "late", replicas=0, sentinels=1) as late:
        replica = late.servers[0]
        replica.command("REPLICAOF", HOST, str(group.servers[0].port))
        backend = open_backend(late.url, environment())
        with pytest.raises(Unavailable, match=f"{replica.place} is a read-only replica"):
            try_once(backend, "n", ttl=3.0)
        backend.close()
        # Another sentinel knows better.
        backend = open_backend(f"redis+sentinel://{late.places},{group.places}/{SERVICE}", environment())
        assert take(backend, "better")
        assert group.servers[0].command("EXISTS", "lock:better") == 1
        backend.close()


@pytest.mark.parametrize("login", ["shared", "own", "none", "wrong"])
def test_sentinels_with_a_password(tmp_path: Path, login: str) -> None:
    secret = "another" if login == "own" else SECRET
    with watched(
        tmp_path / "group", sentinels=1, settings=(f"requirepass {secret}",), password=SECRET, replicas=0
    ) as group:
        user = {"none": "", "wrong": ":x@"}.get(login, f":{SECRET}@")
        query = "?sentinel_password=another" if login == "own" else ""
        url = f"redis+sentinel://{user}{group.places}/{SERVICE}{query}"
        backend = open_backend(url, environment())
        if login in ("shared", "own"):
            assert take(backend, "n")
        else:
            with pytest.raises(Refused, match=r"wants a password|refuses the user or password") as caught:
                try_once(backend, "n")
            assert SECRET not in str(caught.value)
        backend.close()


def test_tls(tmp_path: Path) -> None:
    ca = authority(tmp_path / "ca")
    pem, key = certificate(ca, "server", "IP:127.0.0.1")
    files = (f"tls-cert-file {pem}", f"tls-key-file {key}", f"tls-ca-cert-file {ca}", "tls-auth-clients no")
    with watched(tmp_path / "group", sentinels=1, tls=files) as group:
        url = group.url.replace("redis+", "rediss+", 1)
        backend = open_backend(f"{url}?ca={ca}", environment())
        assert take(backend, "n")
        backend.close()
        backend = open_backend(url, environment())
        with pytest.raises(Refused, match="certificate that does not pass"):
            try_once(backend, "n")
        backend.close()


def test_a_secret_is_seen_nowhere(tmp_path: Path) -> None:
    lab = Lab(tmp_path, f"redis+sentinel://:{SECRET}@{HOST}:{free_port()}/{SERVICE}?sentinel_password={SECRET}")
    done = lab.run("-n", "-vv", "job", "--", "true")
    assert done.returncode == 69
    assert SECRET.encode() not in done.stderr
    lab.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+sentinel://h", "the name of the master stands behind"),
        ("redis+sentinel://h/", "the name of the master stands behind"),
        ("redis+sentinel:///m", "it has HOST"),
        ("redis+sentinel://h,h/m", "h:26379 stands in it twice"),
        ("redis+sentinel://h,,i/m", "HOST or HOST:PORT"),
        ("redis+sentinel://h/m/x", "the database is a number"),
        ("redis+sentinel://h/m?ca=/dev/null", "unknown query key 'ca'"),
        ("rediss+sentinel://h/m?ca=/none", "ca= names no file"),
        ("redis://h,i/0", "HOST or HOST:PORT"),
    ],
)
def test_urls_that_mean_nothing(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        open_backend(url, environment())


def test_a_replica_that_became_the_master_of_a_waiter(tmp_path: Path) -> None:
    """The waiter follows a failover that happens while it waits, and is woken there."""
    with watched(tmp_path / "group", sentinels=1) as group:
        one, two = (open_backend(group.url, environment()) for _ in range(2))
        held = take(one, "n", ttl=30.0)
        with two.enqueue(request("n", 30.0)) as ticket:
            assert ticket.poll() is None
            group.replicated()
            group.fail_over()
            held = one.renew(held, 5.0)
            assert ticket.poll() is None
            one.release(held, 5.0)
            start = boottime()
            grant = acquire(ticket)
            assert boottime() - start < 0.5
        assert grant.token is not None
        assert held.token is not None
        assert grant.token > held.token
        now: RedisServer = group.master()
        assert now is group.servers[1]
        assert now.command("EXISTS", "lock:n") == 1
        one.close()
        two.close()
