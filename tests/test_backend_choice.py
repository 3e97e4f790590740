"""Which backend a command uses, and what may be shown of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from distlock.backend_choice import Chosen, choose
from distlock.backend_url import EMBEDDED
from distlock.backends import with_tls
from distlock.backends.base import ConfigurationError
from distlock.config import Config, load
from distlock.config_keys import Key


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISTLOCK_BACKEND", "DISTLOCK_CONFIG", "DISTLOCK_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def configured(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text)
    path.chmod(0o600)
    return load(str(path), lambda: {"backend": Key()})


PROFILES = """
[backends.prod]
url = "rediss://job@redis/0"
password_file = "redis.password"
ca = "ca é.pem"
cert = "/abs/client.pem"
require = "efficiency"
[backends.other]
url = "rediss://redis?db=1"
key = "k.pem"
[backends.open]
url = "redis://job:hunter2@redis/0"
[backends.local]
url = "local:"
"""


def test_command_line_then_environment_then_configuration_then_the_embedded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(
        tmp_path,
        "backend = 'redis://top'\n[defaults]\nbackend = 'redis://defaults'\n[locks.'a*']\nbackend = 'redis://lock'\n",
    )
    monkeypatch.setenv("DISTLOCK_BACKEND", "redis://environment")
    assert choose("redis://option", config, "ab").url == "redis://option"
    assert choose(None, config, "ab").url == "redis://environment"
    monkeypatch.setenv("DISTLOCK_BACKEND", "")
    assert choose(None, config, "ab").url == "redis://lock"
    assert choose(None, config, "b").url == choose(None, config).url == "redis://defaults"
    assert choose(None, configured(tmp_path, "backend = 'redis://top'")).url == "redis://top"
    for empty in (Config(), configured(tmp_path, "")):
        assert (choose(None, empty).url, choose(None, empty).is_named) == (EMBEDDED, False)


def test_who_chose_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(tmp_path, f"backend = 'local'\n{PROFILES}")
    chosen = choose(None, config)
    assert (chosen.url, chosen.shown, chosen.is_named) == ("local:", "local", True)
    assert chosen.origin == f"{tmp_path}/config.toml: backend"
    assert choose("local:", config).origin == "--backend"
    monkeypatch.setenv("DISTLOCK_BACKEND", "local:")
    assert (choose(None, Config()).origin, choose(None, Config()).is_named) == ("DISTLOCK_BACKEND", True)


def test_profiles_without_a_choice_are_an_error(tmp_path: Path) -> None:
    """Or each host would quietly lock by itself."""
    config = configured(tmp_path, f"{PROFILES}[locks.x]\nbackend = 'local'\n")
    for lock in (None, "y"):
        with pytest.raises(
            ConfigurationError, match=r"config\.toml: backends are defined \(prod, other, open, local\)"
        ):
            choose(None, config, lock)
    assert choose(None, config, "x").shown == choose("local", config).shown == "local"


def test_a_profile_by_its_name(tmp_path: Path) -> None:
    config = configured(tmp_path, PROFILES)
    password = tmp_path / "redis.password"
    password.write_text("hunter2\n")
    password.chmod(0o600)
    chosen = choose("prod", config)
    files = f"ca={tmp_path}/ca%20%C3%A9.pem&cert=/abs/client.pem"
    assert chosen == Chosen(f"rediss://job@redis/0?{files}", "prod", "--backend", "hunter2", "efficiency")
    assert choose("other", config).url == f"rediss://redis?db=1&key={tmp_path}/k.pem"
    assert with_tls("postgresql", "postgresql://db/jobs", {"ca": "/c"}) == "postgresql://db/jobs?sslrootcert=/c"
    for name in ("prod", "open"):
        assert "hunter2" not in repr(choose(name, config))
        assert choose(name, config).shown == name


def test_the_password_of_the_environment_counts_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured(tmp_path, PROFILES)  # with a password_file that is not there
    monkeypatch.setenv("DISTLOCK_PASSWORD", "theirs")
    assert choose("prod", config).password == "theirs"
    assert choose("redis://h", Config()).password == "theirs"
    monkeypatch.setenv("DISTLOCK_PASSWORD", "")
    with pytest.raises(ConfigurationError, match=r"redis\.password: no such file"):
        choose("prod", config)
    assert choose("redis://h", Config()).password is None


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("prd", "no backend is named 'prd'; did you mean prod?"),
        ("staging", "no backend is named 'staging'; known are prod, other, open, local"),
        ("job;hunter2@host", "neither a URL"),
        ("/tmp/x", "no backend is named '/tmp/x'; known are "),
        ("nosuch:hunter2", "no backend for 'nosuch:'"),
    ],
)
def test_a_word_that_names_none(tmp_path: Path, word: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        choose(word, configured(tmp_path, PROFILES))
    assert said in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_without_any_profile(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no configuration defines one"):
        choose("prod", Config())
    with pytest.raises(ConfigurationError, match=f"^{tmp_path}/config.toml: backend: no backend is named 'prod'"):
        choose(None, configured(tmp_path, "backend = 'prod'"))


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ("url = 'nosuch://x:hunter2@y'", r"\[backends\.p\] url: no backend for 'nosuch:'"),
        ("url = 'p'", r"\[backends\.p\] url: no backend for 'p'; "),
        ("url = 'redis://:hunter2@y'\npassword_file = 'x'", "has a password already"),
    ],
)
def test_a_profile_that_cannot_work(tmp_path: Path, profile: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        choose("p", configured(tmp_path, f"[backends.p]\n{profile}\n"))
    assert "hunter2" not in str(caught.value)
