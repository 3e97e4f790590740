"""What doctor says of a configuration, and of the way in which the backend was chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from distlock.backend_choice import Chosen, choose
from distlock.config import Config, load
from distlock.config_keys import Key
from distlock.doctor import configuration


@pytest.fixture(autouse=True)
def nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISTLOCK_BACKEND", "DISTLOCK_CONFIG", "DISTLOCK_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def configured(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text)
    path.chmod(0o600)
    return load(str(path), lambda: {"backend": Key(), "ttl": Key("duration")})


def told(config: Config, option: str | None = None) -> dict[str, str]:
    found = list(configuration.findings(config, choose(option, config)))
    assert len({noted.key for noted in found}) == len(found)
    return {noted.key: noted.finding.evidence for noted in found}


ONE = 'backend = "prod"\n[backends.prod]\nurl = "redis://h"\n'


def test_nothing_of_a_plain_one(tmp_path: Path) -> None:
    assert told(configured(tmp_path, ONE)) == {}
    assert told(configured(tmp_path, "backend = 'local:'\n")) == {}


def test_nobody_named_a_backend(tmp_path: Path) -> None:
    assert set(told(Config())) == {"no-backend-named"}
    assert str(tmp_path) in told(configured(tmp_path, "[defaults]\nttl = 10\n"))["no-backend-named"]


@pytest.mark.parametrize("by", ["--backend", "DISTLOCK_BACKEND"])
def test_named_for_this_command_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    def of(config: Config, name: str) -> dict[str, str]:
        if by == "--backend":
            return told(config, name)
        monkeypatch.setenv(by, name)
        return told(config)

    assert "redis://h; without it there is local:" in of(Config(), "redis://h")["backend-of-this-command"]
    assert "there is prod" in of(configured(tmp_path, ONE), "etcd://e")["backend-of-this-command"]
    assert of(configured(tmp_path, ONE), "prod") == {}
    chooses_none = "[backends.prod]\nurl = 'redis://h'\n"
    assert "there is none" in of(configured(tmp_path, chooses_none), "prod")["backend-of-this-command"]
    broken = "backend = 'gone'\n[backends.prod]\nurl = 'redis://h'\n"
    assert "none that could be used" in of(configured(tmp_path, broken), "prod")["backend-of-this-command"]


def test_several_engines(tmp_path: Path) -> None:
    two = ONE + "[backends.audit]\nurl = 'etcds://:secret@e'\n"
    evidence = told(configured(tmp_path, two))["several-engines"]
    assert evidence == "prod is redis:; audit is etcds:"
    by_lock = ONE + "[locks.'a*']\nbackend = 'postgresql://:secret@h/d'\n"
    assert told(configured(tmp_path, by_lock))["several-engines"] == "prod is redis:; [a*] backend is postgresql:"
    assert told(configured(tmp_path, ONE + "[backends.tls]\nurl = 'rediss://h'\n")) == {}
    assert "several-engines" in told(configured(tmp_path, ONE + "[backends.ha]\nurl = 'redlock://a,b,c'\n"))


def test_a_profile_that_cannot_be_used(tmp_path: Path) -> None:
    broken = ONE + "[backends.old]\nurl = 'memcached://user:secret@h'\n"
    assert "'memcached:'" in told(configured(tmp_path, broken))["profile-broken"]
    assert "secret" not in told(configured(tmp_path, broken))["profile-broken"]
    slip = ONE + "[backends.old]\nurl = 'user@secret:h'\n"
    assert "secret" not in told(configured(tmp_path, slip))["profile-broken"]


def test_passwords_in_sight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "redis://user:secret@h"
    assert told(Config(), url)["password-in-arguments"] == "-b redis://user:***@h"
    profile = configured(tmp_path, f"backend = 'prod'\n[backends.prod]\nurl = '{url}'\n")
    assert told(profile, "prod") == told(profile) == {}
    monkeypatch.setenv("DISTLOCK_BACKEND", url)
    assert told(Config())["password-in-environment"] == "DISTLOCK_BACKEND=redis://user:***@h"
    monkeypatch.setenv("DISTLOCK_PASSWORD", "secret")
    monkeypatch.setenv("DISTLOCK_BACKEND", "redis://user@h")
    assert set(told(Config())) == {"backend-of-this-command"}


def ttls(config: Config, chosen: Chosen) -> list[tuple[float, str]]:
    return [(ttl, where.rpartition(": ")[2]) for ttl, where in configuration.configured_ttls(config, chosen)]


def test_ttls_of_the_backend_that_was_chosen(tmp_path: Path) -> None:
    assert ttls(Config(), choose(None, Config())) == [(30.0, "the default")]
    text = """
[defaults]
ttl = "1m"
[locks."here"]
ttl = 10
backend = "prod"
[locks."there"]
ttl = 11
backend = "other"
[locks."anywhere"]
ttl = 12
[locks."no ttl"]
backend = "prod"
[backends.other]
url = "redis://o"
"""
    config = configured(tmp_path, ONE + text)
    found = [(60.0, "[defaults] ttl"), (10.0, '[locks."here"] ttl'), (12.0, '[locks."anywhere"] ttl')]
    assert ttls(config, choose(None, config)) == found
