"""Redis URLs: what they mean, and that no mistake in one shows a password."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contenders import environment
from distlock.backends import SCHEMES, open_backend
from distlock.backends.base import ConfigurationError
from distlock.backends.redis_url import parse


@pytest.mark.parametrize(
    ("url", "address", "user", "password", "db"),
    [
        ("redis://", "localhost:6379", None, None, 0),
        ("redis://h", "h:6379", None, None, 0),
        ("redis://h/", "h:6379", None, None, 0),
        ("redis://h:7000/3", "h:7000", None, None, 3),
        ("redis:///3", "localhost:6379", None, None, 3),
        ("redis://:secret@h", "h:6379", None, "secret", 0),
        ("redis://job:secret@h", "h:6379", "job", "secret", 0),
        ("redis://job@h", "h:6379", "job", None, 0),
        ("redis://job:@h", "h:6379", "job", "", 0),
        ("redis://j%40b:a%3Ab%2Fc%40d%25@h:1", "h:1", "j@b", "a:b/c@d%", 0),
        ("redis://job:a:b@h", "h:6379", "job", "a:b", 0),
        ("redis://:%D1%8F@h", "h:6379", None, "я", 0),
        ("redis://[::1]:7000", "[::1]:7000", None, None, 0),
        ("redis://[fe80::1%25eth0]", "[fe80::1%eth0]:6379", None, None, 0),
        ("rediss://job:secret@h:7000/1", "h:7000", "job", "secret", 1),
        ("redis+unix:///run/redis.sock", "/run/redis.sock", None, None, 0),
        ("redis+unix://job:secret@/run/a%20b.sock?db=2", "/run/a b.sock", "job", "secret", 2),
    ],
)
def test_urls(url: str, address: str, user: str | None, password: str | None, db: int) -> None:
    found = parse(url)
    assert (found.address, found.user, found.password, found.db) == (address, user, password, db)
    assert found.tls == url.startswith("rediss:")
    assert bool(found.path) == url.startswith("redis+unix:")


@pytest.mark.parametrize(
    "url",
    [
        "redis:",
        "redis:h",
        "redis:/h",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:x",
        "redis://h:",
        "redis://h:1:2",
        "redis://::1",
        "redis://[::1",
        "redis://a..b",
        f"redis://{'a' * 64}",
        "redis://h/x",
        "redis://h/-1",
        "redis://h/1/2",
        "redis://h/²",
        "redis://h/1#f",
        "redis://a b",
        "redis://%ff",
        "redis://h%zz",
        "redis://h\n",
        "redis://h%0a",
        "redis+unix://",
        "redis+unix:///",
        "redis+unix://h/sock",
        "redis+unix:///sock?db=x",
        "redis+unix:///sock?db=",
        "redis+unix:///sock?db=1&db=2",
        "rediss://h?ca=/no/such/file",
        "rediss://h?ca",
        "rediss://h?key=/dev/null",
    ],
)
def test_urls_that_mean_nothing(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_backend(url, environment())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("redis://h?ssl=true", "ssl"),
        ("redis://h?ca=/dev/null", "ca"),
        ("rediss://h?ssl_cert_reqs=none", "ssl_cert_reqs"),
        ("rediss://h?db=1", "db"),
        ("redis+unix:///s?socket_timeout=4711", "socket_timeout"),
    ],
)
def test_an_unknown_query_key_is_named_and_its_value_is_not(url: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=f"unknown query key '{key}'") as caught:
        parse(url)
    assert url.partition("=")[2] not in str(caught.value)


def test_tls_files(tmp_path: Path) -> None:
    for name in ("a b", "cert", "key"):
        (tmp_path / name).touch()
    found = parse(f"rediss://h?ca={tmp_path}/a%20b&cert={tmp_path}/cert&key={tmp_path}/key")
    assert (found.ca, found.cert, found.key) == tuple(f"{tmp_path}/{name}" for name in ("a b", "cert", "key"))


def test_what_a_server_looks_like_in_a_traceback() -> None:
    assert repr(parse("redis://job:hunter2@h")) == "<Redis at h:6379>"


pieces = st.lists(st.sampled_from([*"/?#@:&=%[] .", "7531", "9642"]), max_size=12).map("".join)


schemes = st.sampled_from([scheme for scheme in SCHEMES if scheme.startswith("red")])


@given(
    schemes, pieces, st.sampled_from(["h", "h:1", "h/1", "/s", "h:7531", "h,i,j/m", "h,i,h/m", "h,/m?x=1", "h/m?x=y"])
)
def test_no_mistake_shows_a_password(scheme: str, secret: str, rest: str) -> None:
    """However it is quoted or not, in every scheme of the family."""
    try:
        open_backend(f"{scheme}://job:{secret}@{rest}", environment())
    except ConfigurationError as error:
        assert "7531" not in str(error)
        assert "9642" not in str(error)
