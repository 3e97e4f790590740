"""Which etcd a URL means, and that a mistake in it does not show the password."""

from __future__ import annotations

from pathlib import Path

import pytest

from contenders import environment
from distlock.backends.base import ConfigurationError
from distlock.backends.etcd import EtcdBackend
from distlock.backends.etcd_url import parse

SECRET = "hunter2"


@pytest.mark.parametrize(
    ("url", "endpoints", "user", "password", "tls"),
    [
        ("etcd://", ("localhost:2379",), None, None, False),
        ("etcd://h", ("h:2379",), None, None, False),
        ("etcd://h:1/", ("h:1",), None, None, False),
        ("etcds://h1,h2:2,10.0.0.3:3", ("h1:2379", "h2:2", "10.0.0.3:3"), None, None, True),
        ("etcd://[::1],[fe80::1]:7", ("[::1]:2379", "[fe80::1]:7"), None, None, False),
        ("etcd://h,h,h:2379", ("h:2379",), None, None, False),
        ("etcd://u:p@h", ("h:2379",), "u", "p", False),
        ("etcd://u:@h", ("h:2379",), "u", "", False),
        ("etcd://u@h1,h2", ("h1:2379", "h2:2379"), "u", None, False),
        ("etcd://u%40x:a%2Fb%3A%25:c,@h", ("h:2379",), "u@x", "a/b:%:c,", False),
    ],
)
def test_what_a_url_means(
    url: str, endpoints: tuple[str, ...], user: str | None, password: str | None, tls: bool
) -> None:
    found = parse(url)
    assert (found.endpoints, found.user, found.password, found.tls) == (endpoints, user, password, tls)
    assert SECRET not in repr(parse(f"etcd://u:{SECRET}@h"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"etcd:u:{SECRET}@h", "begins with etcd://"),
        (f"etcd://u:{SECRET}/@h", "are written %2F"),
        (f"etcd://u:{SECRET}?@h", "are written %2F"),
        (f"etcd://u:{SECRET}%zz@h", "%25"),
        (f"etcd://u:{SECRET}%00@h", "control character"),
        (f"etcd://:{SECRET}@h", "needs a user"),
        (f"etcd://u:{SECRET}@h:x", "HOST:PORT"),
        (f"etcd://u:{SECRET}@h:0", "1 to 65535"),
        (f"etcd://u:{SECRET}@h,,i", "HOST:PORT"),
        (f"etcd://u:{SECRET}@h/prefix", "no path"),
        (f"etcd://u:{SECRET}@h?ca=x", "takes none"),
        (f"etcds://u:{SECRET}@h?{SECRET}&=1", "query key"),
        (f"etcds://u:{SECRET}@h?ca=/none", "ca= names no file"),
        (f"etcds://u:{SECRET}@h?cert={__file__}", "cert= needs key="),
        (f"etcds://u:{SECRET}@h?key={__file__}", "key= needs cert="),
        (f"etcd://u:{SECRET}@http://h", "no path"),
    ],
)
def test_what_cannot_work(url: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse(url)
    assert words in str(raised.value)
    assert f"u:{SECRET}" not in str(raised.value)


def test_a_user_without_a_password() -> None:
    given = environment(Path("/nonexistent"))
    with pytest.raises(ConfigurationError, match="DISTLOCK_PASSWORD is not set"):
        EtcdBackend.from_url("etcd://u@h", given)
    EtcdBackend.from_url("etcd://u@h", given._replace(password="x")).close()
    EtcdBackend.from_url("etcd://h", given._replace(password="x")).close()
    with pytest.raises(ConfigurationError, match="UTF-8"):
        EtcdBackend.from_url("etcd://u@h", given._replace(password="\udcff"))
