"""Which ensemble a URL means, and that no part of a login is ever shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from contenders import environment
from distlock.backends.base import ConfigurationError
from distlock.backends.zookeeper import ZooKeeperBackend
from distlock.backends.zookeeper_url import Server, parse


@pytest.mark.parametrize(
    ("url", "servers", "chroot", "user", "password"),
    [
        ("zookeeper://h", [("h", 2181)], "", None, None),
        ("zookeeper://h/", [("h", 2181)], "", None, None),
        ("zookeeper://h:1", [("h", 1)], "", None, None),
        ("zookeeper://a,b:2,c", [("a", 2181), ("b", 2), ("c", 2181)], "", None, None),
        ("zookeeper://a,b/chroot", [("a", 2181), ("b", 2181)], "/chroot", None, None),
        ("zookeeper://a/ch/ro/ot/", [("a", 2181)], "/ch/ro/ot", None, None),
        ("zookeeper://a/%D0%B7%20x", [("a", 2181)], "/з x", None, None),
        ("zookeeper://[::1]:7,[fe80::1%25lo]", [("::1", 7), ("fe80::1%lo", 2181)], "", None, None),
        ("zookeeper://u@h", [("h", 2181)], "", "u", None),
        ("zookeeper://u:@h", [("h", 2181)], "", "u", ""),
        ("zookeeper://u:p@a,b/c", [("a", 2181), ("b", 2181)], "/c", "u", "p"),
        ("zookeeper://u:p%40:%2F%25@h", [("h", 2181)], "", "u", "p@:/%"),
        ("zookeepers://h:2281", [("h", 2281)], "", None, None),
    ],
)
def test_parts(url: str, servers: list[tuple[str, int]], chroot: str, user: str | None, password: str | None) -> None:
    found = parse(url)
    assert found.servers == tuple(Server(*server) for server in servers)
    assert (found.chroot, found.user, found.password) == (chroot, user, password)
    assert found.tls == url.startswith("zookeepers:")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("zookeeper:", "it begins with zookeeper://"),
        ("zookeeper:/h", "it begins with zookeeper://"),
        ("zookeeper://", "HOST or HOST:PORT"),
        ("zookeeper:///chroot", "HOST or HOST:PORT"),
        ("zookeeper://a,,b", "HOST or HOST:PORT"),
        ("zookeeper://a,", "HOST or HOST:PORT"),
        ("zookeeper://a b", "HOST or HOST:PORT"),
        ("zookeeper://a:0", "1 to 65535"),
        ("zookeeper://a:65536", "1 to 65535"),
        ("zookeeper://a:x", "HOST or HOST:PORT"),
        ("zookeeper://::1", "HOST or HOST:PORT"),
        (f"zookeeper://{'x' * 64}.example", "no host name"),
        ("zookeeper://a..b", "no host name"),
        ("zookeeper://a/b//c", "no empty part"),
        ("zookeeper://a/./c", "no empty part"),
        ("zookeeper://a/..", "no empty part"),
        ("zookeeper://a/zookeeper", "belongs to the servers"),
        ("zookeeper://a/zookeeper/x", "belongs to the servers"),
        ("zookeeper://a/x%00", "control character"),
        ("zookeeper://a/%FF", "percent escapes are UTF-8"),
        ("zookeeper://a/%zz", "a % that is no escape"),
        ("zookeeper://:p@a", "a login is USER:PASSWORD@"),
        ("zookeeper://u%3Av:p@a", "no colon in its name"),
        ("zookeeper://u:p@q/x@a", "are written %2F"),
        ("zookeeper://a/x#y", "are written %2F"),
        ("zookeeper://a?ca=/x", "unknown query key 'ca'"),
        ("zookeepers://a?tls=1", "unknown query key 'tls'"),
        ("zookeepers://a?ca=", "has one value"),
        ("zookeepers://a?ca=/nowhere", "names no file"),
        (f"zookeepers://a?key={__file__}", "key= needs cert="),
    ],
)
def test_a_url_that_cannot_work(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse(url)
    assert says in str(error.value)
    assert str(error.value).startswith(f"backend URL {url.partition(':')[0]}://***: ")


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://sam:s3cret@h:x",
        "zookeeper://sam:s3cret@@h/..",
        "zookeeper://sam:s3%zzcret@h",
        "zookeeper://sam:s3c#ret@h",
        "zookeeper://sam:s3c?ret@h",
        "zookeeper://sam:s3c/ret@h",
        "zookeepers://sam:s3cret@h?x=s3cret&y",
        "zookeepers://sam:s3cret@h?s3cret%",
    ],
)
def test_a_wrong_url_is_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        parse(url)
    for part in ("sam", "s3", "cret"):
        assert part not in str(error.value)


def test_a_login_is_in_no_representation() -> None:
    assert repr(parse("zookeeper://sam:s3cret@a,b:1/x")) == "<ZooKeeper at a:2181,b:1>"


def test_a_password_of_the_environment_has_to_be_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="DISTLOCK_PASSWORD is no UTF-8"):
        ZooKeeperBackend.from_url("zookeeper://u@h", environment(tmp_path)._replace(password="\udcff"))


def test_a_start_without_tls_loads_no_more_than_it_needs() -> None:
    """The child starts as early as possible: of kazoo only the protocol, and of Python no TLS."""
    script = (
        "import sys, distlock.backends.zookeeper; print(sorted({'ssl', 'kazoo.client', 'uuid'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
