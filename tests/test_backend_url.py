"""URLs as they may be shown: whatever is typed, no part of a password is in it."""

from __future__ import annotations

import string
from urllib.parse import quote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from distlock.backend_url import has_secret, masked


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("local:", "local:"),
        ("local:///srv/locks", "local:///srv/locks"),
        ("prod", "prod"),
        ("redis://cache:6379/0", "redis://cache:6379/0"),
        ("redis://deploy@cache/0", "redis://deploy@cache/0"),
        ("redis://deploy:secret@cache/0", "redis://deploy:***@cache/0"),
        ("redis://:secret@cache/0", "redis://:***@cache/0"),
        ("redis://deploy:@cache/0", "redis://deploy:***@cache/0"),
        ("redis+sentinel://deploy:secret@h1,h2:26379/main/0", "redis+sentinel://deploy:***@h1,h2:26379/main/0"),
        ("postgresql://job:sec%40ret@db1,db2/jobs", "postgresql://job:***@db1,db2/jobs"),
        ("postgresql://db/jobs?user=job&password=secret", "postgresql://db/jobs?***"),
        ("etcds://h1,h2?ca=/etc/ca.pem&key=/etc/key.pem", "etcds://h1,h2?***"),
        # Typed without escapes: what a parser takes for the host or for a parameter may be the rest of the password.
        ("redis://deploy:se@cr:et@cache/0", "redis://deploy:***@cache/0"),
        ("redis://deploy:se/cret@cache/0", "redis://deploy:***@cache/0"),
        ("redis://deploy:sec#ret@cache/0", "redis://deploy:***@cache/0"),
        ("redis://deploy:se?cret@cache/0", "redis://***"),
        ("redis://deploy:s@e?cret@cache/0", "redis://***"),
        ("postgresql://db/jobs?password=se&cr=et", "postgresql://db/jobs?***"),
        ("postgresql://db/jobs?password=se@cret", "postgresql://***"),
        # Slips in what comes before.
        ("redis:/deploy:secret@cache", "redis:***"),
        ("redis:deploy:secret@cache", "redis:***"),
        ("deploy:secret@cache", "deploy:***"),
        ("postgresql:/db/jobs?password=secret", "postgresql:***"),
    ],
)
def test_shown(url: str, shown: str) -> None:
    assert masked(url) == shown


schemes = st.sampled_from(["redis", "rediss", "redis+sentinel", "postgresql", "postgresql+advisory", "etcds", "x"])
words = st.text(string.ascii_lowercase, min_size=1, max_size=6)
hosts = st.lists(words, min_size=1, max_size=3).map(",".join)
paths = st.sampled_from(["", "/", "/0", "/jobs", "/a/b"])
# Digits and marks, so that no part of a password can come from another part of the URL by chance.
secrets = st.lists(st.sampled_from(["@", ":", "/", "?", "&", "=", "#", "%", "[", "://", "7531", "8642"]), min_size=1)


def pieces(secret: str) -> list[str]:
    return [piece for piece in ("7531", "8642") if piece in secret]


@given(schemes, words, secrets.map("".join), hosts, paths, st.sampled_from(["", "?db=1", "?a=b&c"]), st.booleans())
def test_no_part_of_a_password_is_shown(
    scheme: str, user: str, secret: str, host: str, path: str, query: str, escaped: bool
) -> None:
    assume(pieces(secret))
    password = quote(secret, safe="") if escaped else secret
    shown = masked(f"{scheme}://{user}:{password}@{host}{path}{query}")
    for piece in pieces(secret):
        assert piece not in shown
    assert shown.startswith(f"{scheme}://")
    assert "***" in shown
    if escaped:
        assert shown.startswith(f"{scheme}://{user}:***@{host}{path}")


@given(schemes, hosts, paths, words, secrets.map("".join), st.booleans(), st.sampled_from(["", "job@", "job:0000@"]))
def test_no_part_of_a_parameter_is_shown(
    scheme: str, host: str, path: str, key: str, secret: str, first: bool, user: str
) -> None:
    assume(pieces(secret))
    query = f"{key}={secret}" if first else f"connect_timeout=3&{key}={secret}"
    shown = masked(f"{scheme}://{user}{host}{path}?{query}")
    for piece in [*pieces(secret), "0000"]:
        assert piece not in shown


@given(secrets.map("".join), words, words, st.sampled_from(["redis:", "redis:/", ""]))
def test_nor_of_one_in_a_url_that_is_none(secret: str, user: str, host: str, start: str) -> None:
    assume(pieces(secret))
    assume(start or not secret.startswith("//"))  # or it is a URL after all, and the user's name is no secret
    shown = masked(f"{start}{user}:{secret}@{host}")
    for piece in pieces(secret):
        assert piece not in shown


@given(st.text())
def test_anything_can_be_shown(url: str) -> None:
    masked(url)


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("local:///srv/locks", False),
        ("redis://deploy@cache/0", False),
        ("rediss://cache?ca=/etc/ca.pem&key=/etc/key.pem", False),
        ("postgresql://job@db/jobs?passfile=/etc/pgpass&sslmode=require", False),
        ("redis://:x@cache", True),
        ("redis://deploy:@cache/0", True),
        ("postgresql://db/jobs?user=job&password=x", True),
        ("postgresql://db/jobs?sslpassword=x", True),
        ("postgresql://db/jobs?password=x@y", True),
        ("redis:/deploy:secret@cache", True),
    ],
)
def test_what_has_a_secret(url: str, secret: bool) -> None:
    assert has_secret(url) is secret


@pytest.mark.parametrize(
    "slip",
    [
        "redis://job:s3cret",
        "redis://job:s3cret/0",
        "redis://h1:6379,job:s3cret",
        "postgresql:host=h password=s3cret",
        "etcd:job:s3cret@h",
    ],
)
def test_of_a_url_with_a_slip_nothing_is_shown_that_may_be_its_password(slip: str) -> None:
    assert "s3cret" not in masked(slip)
    assert has_secret(slip)


@pytest.mark.parametrize(
    "plain",
    ["redis://h", "redis://h:6379/0", "etcd://h1:2379,h2:2379", "redis://[::1]:6379", "local:", "local:///a:b/c"],
)
def test_a_url_without_a_secret_is_shown_whole(plain: str) -> None:
    assert masked(plain) == plain
    assert not has_secret(plain)
