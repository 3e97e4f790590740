"""The configuration: which file, whose, what is in it, and what counts when several say something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distlock.backends.base import ConfigurationError
from distlock.config import Config, Layer, load, merged
from distlock.config_file import ConfigFile, read, read_password
from distlock.config_keys import JOURNAL, METRICS, PROFILE, Key

KEYS = {
    "ttl": Key("duration"),
    "wait": Key("duration", other_names=("timeout",)),
    "nonblock": Key("flag", other_names=("nb",)),
    "conflict-exit-code": Key("number", lowest=0, highest=255),
    "verbose": Key("count"),
    "label": Key(),
    "backend": Key(),
    "descendants": Key(choices=("leave", "kill")),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def load_text(path: Path, text: str | bytes) -> Config:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(0o600)
    return load(str(path), lambda: KEYS)


def fault(path: Path, text: str | bytes) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_text(path, text)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    return line.replace(str(path), "FILE")


def values(layers: list[Layer]) -> list[dict[str, object]]:
    return [{key: setting.value for key, setting in layer.settings.items()} for layer in layers]


# -- which file --------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "DISTLOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("distlock.config.SITE", tmp_path / "etc/distlock/config.toml")
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_no_file_is_no_configuration(home: Path) -> None:
    def asked() -> dict[str, Key]:
        raise AssertionError("without a file nobody has to know the keys")

    assert load(None, asked) == Config()
    (home / ".config").touch()  # in the way of the folder
    assert load(None, asked) == Config()


def test_without_any_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("", "relative"):
        monkeypatch.setenv("HOME", value)
        monkeypatch.chdir(home)
        load(None, lambda: KEYS)
        assert os.environ["HOME"] == value, "which may be that of a program that holds a lock"


def test_the_users_file_over_the_sites_key_by_key(home: Path) -> None:
    site = write(
        home / "etc/distlock/config.toml",
        """
        backend = "prod"
        [backends.prod]
        url = "redis://site"
        ca = "ca.pem"
        [backends.other]
        url = "redis://other"
        [defaults]
        ttl = "1m"
        wait = "1h"
        [locks."a*"]
        label = "site"
        ttl = 50
        [journal]
        runs = 7
        """,
    )
    user = write(
        home / ".config/distlock/config.toml",
        """
        [backends.prod]
        url = "redis://user"
        [defaults]
        wait = 5
        [locks."ab*"]
        label = "user"
        [journal]
        enabled = false
        """,
    )
    config = load(None, lambda: KEYS)
    assert config.files == (site, user)
    assert config.backend
    assert config.backend.value == "prod"
    assert {key: (s.value, s.file) for key, s in config.profiles["prod"].items()} == {
        "url": ("redis://user", user),
        "ca": ("ca.pem", site),
    }
    assert config.profiles["other"]["url"].value == "redis://other"
    assert {key: s.value for key, s in config.journal.items()} == {"runs": 7, "enabled": False}
    found = {lock: {k: s.value for k in KEYS if (s := config.setting(k, lock))} for lock in ("x", "ax", "abx")}
    assert found == {
        "x": {"ttl": "1m", "wait": "5"},
        "ax": {"ttl": "50", "wait": "5", "label": "site"},
        "abx": {"ttl": "50", "wait": "5", "label": "user"},
    }
    assert config.setting("ttl", None) == config.setting("ttl", "x")


def test_a_named_file_stands_alone(home: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(home / "etc/distlock/config.toml", "[defaults]\nttl = 50\n")
    other = write(home / "other.toml", "[defaults]\nwait = 2\n")
    assert load_text(path, "[defaults]\nlabel = 'x'\n").files == (path,)
    monkeypatch.setenv("DISTLOCK_CONFIG", str(other))
    assert load(None, lambda: KEYS).files == (other,)
    assert load(str(path), lambda: KEYS).files == (path,)
    monkeypatch.setenv("DISTLOCK_CONFIG", "")
    assert load(None, lambda: KEYS).files == (home / "etc/distlock/config.toml",)
    assert load("/dev/null", lambda: KEYS).layers_for("x") == [Layer(None, {})]


def test_a_named_file_that_is_none(path: Path) -> None:
    for named in (path, path / "below", path.parent / "no/such"):
        with pytest.raises(ConfigurationError, match=f"^{named}: no such"):
            load(str(named), lambda: KEYS)
    with pytest.raises(ConfigurationError, match=f"^{path.parent}: is a directory"):
        load(str(path.parent), lambda: KEYS)


# -- whose -------------------------------------------------------------------------------------------------------------

SECRET = "[backends.p]\nurl = 'redis://u:hunter2@h'\n"


@pytest.mark.parametrize(
    ("text", "mode", "owner", "good"),
    [
        ("", 0o644, 0, True),
        ("", 0o664, 0, True),
        ("", 0o646, 0, False),  # anybody could write it
        ("", 0o600, 12345, False),  # somebody else's
        (SECRET, 0o600, 0, True),
        (SECRET, 0o640, 0, True),  # root hands it to a group
        (SECRET, 0o604, 0, False),
        (SECRET, 0o644, 0, False),
        ("backend = 'redis://u:hunter2@h'", 0o644, 0, False),
        ("[defaults]\nbackend = 'redis://u:hunter2@h'", 0o644, 0, False),
        ("[locks.a]\nbackend = 'postgresql://h/d?password=hunter2'", 0o644, 0, False),
        ("[backends.p]\nurl = 'redis://u@h'\npassword_file = 'x'", 0o644, 0, True),
    ],
)
def test_whose_it_is_and_who_may_read_it(path: Path, text: str, mode: int, owner: int, good: bool) -> None:
    path.write_text(text)
    path.chmod(mode)
    os.chown(path, owner, -1)
    if good:
        assert read(path)
        return
    with pytest.raises(ConfigurationError) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "hunter2" not in str(caught.value)


def test_one_that_is_not_roots_is_for_nobody_else(tmp_path: Path) -> None:
    """As another user: theirs with a secret must be 0600, 0640 will not do."""
    script = """
import os, sys, tempfile, tomllib, platformdirs, platformdirs.unix, difflib
from distlock.config import Config, load
from pathlib import Path
from distlock.backends.base import ConfigurationError
from distlock.config_file import read
os.setgid(12345), os.setuid(12345)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "c.toml"
    path.write_text("backend = 'redis://:hunter2@h'")
    for mode in (0o600, 0o640, 0o644):
        path.chmod(mode)
        try:
            read(path)
            print(oct(mode), "read")
        except ConfigurationError:
            print(oct(mode), "refused")
    os.environ["HOME"] = sys.argv[1]  # another user's, as under sudo or setpriv
    print(load(None, dict) == Config())
    path.chmod(0)
    try:
        read(path)
    except ConfigurationError as error:
        print(str(error).partition(": ")[2])
"""
    tmp_path.chmod(0o700)
    words = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "0o600 read",
        "0o640 refused",
        "0o644 refused",
        "True",
        "permission denied for uid 12345; another file can be named with --config or DISTLOCK_CONFIG",
    ]


def test_password_files(tmp_path: Path) -> None:
    path = tmp_path / "password"
    with pytest.raises(ConfigurationError, match="no such file"):
        read_password(path)
    path.write_bytes(b"se cr\xffet\r\nsecond\n")
    path.chmod(0o600)
    assert os.fsencode(read_password(path)) == b"se cr\xffet"
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="read by others"):
        read_password(path)
    path.write_text("\nx")
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="no password"):
        read_password(path)


# -- what is in it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a = 1\nb = \n", "2:5: "),
        ("[defaults\n", "1:10: "),
        ("a = 'x", "1:7: "),
        ("\n\n  = 1", "3:3: "),
        (b"a = 1\nb = '\xff'", "2:6: not UTF-8"),
        ("a = 1\na = 2\n", "2:6: "),
        ("a = " + "[" * 5000, ""),
    ],
)
def test_a_broken_file_is_a_place(path: Path, text: str | bytes, place: str) -> None:
    assert fault(path, text).startswith(f"FILE:{place}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bakend = 'x'", "FILE: unknown key 'bakend'; did you mean backend?"),
        ("[default]\nttl = 5", "FILE: unknown key 'default'; did you mean defaults?"),
        ("[backend]\nprod = 1", "FILE: backend is a text, not a table"),
        ("zzz = 1", "FILE: unknown key 'zzz'; known are backend, backends, defaults, journal, locks, metrics"),
        ("[defaults]\nttll = 5", "FILE: [defaults]: unknown key 'ttll'; did you mean ttl?"),
        ("[defaults]\ntimeout = 5", "FILE: [defaults]: unknown key 'timeout'; did you mean wait?"),
        ("[defaults]\nnb = true", "FILE: [defaults]: unknown key 'nb'; did you mean nonblock?"),
        (
            "[defaults]\nconflict_exit_code = 5",
            "[defaults]: unknown key 'conflict_exit_code'; did you mean conflict-ex",
        ),
        (
            "[backends.p]\nurl = 'local:'\npassword = 'hunter2'",
            "FILE: [backends.p]: unknown key 'password'; did you mea",
        ),
        ('[locks."n-*"]\nttl_ = 5', "FILE: [locks.\"n-*\"]: unknown key 'ttl_'; did you mean ttl?"),
        ("[metrics]\ntext_file = 'x'", "FILE: [metrics]: unknown key 'text_file'; did you mean textfile?"),
        ("[journal]\nkeeep = 1", "FILE: [journal]: unknown key 'keeep'; did you mean keep?"),
        ('"a\\u001b[31m\\n" = 1', r"FILE: unknown key 'a\x1b[31m\n'"),
        ("defaults = 5", "FILE: [defaults] is a table, not a number"),
        ("locks = ['x']", "FILE: locks is a table, not a list"),
        ("[locks]\nttl = 5", 'FILE: [locks."ttl"] is a table, not a number'),
        ("[backends]\nprod = 'redis://:hunter2@h'", "FILE: [backends.prod] is a table, not a text"),
        ("[backends.p]\nca = 'x'", "FILE: [backends.p] has no url"),
        ("[backends.'a:b']\nurl = 'local:'", "FILE: 'a:b' is no name for a backend"),
        ("[defaults]\nttl = true", "FILE: [defaults] ttl is a text, not true"),
        ("[defaults]\nttl = '5 parsecs'", "FILE: [defaults] ttl: '5 parsecs' is not a duration"),
        ("[defaults]\nttl = -1", "FILE: [defaults] ttl: '-1' is not a duration"),
        ("[defaults]\nttl = inf", "FILE: [defaults] ttl: 'inf' is not a duration"),
        ("[defaults]\nttl = 1979-05-27", "FILE: [defaults] ttl is a text, not a date or time"),
        ("[defaults]\nnonblock = 1", "FILE: [defaults] nonblock is true or false, not a number"),
        ("[defaults]\nconflict-exit-code = 256", "FILE: [defaults] conflict-exit-code is 0 to 255, not 256"),
        ("[defaults]\nconflict-exit-code = '5'", "FILE: [defaults] conflict-exit-code is a whole number, not a text"),
        ("[defaults]\nconflict-exit-code = true", "FILE: [defaults] conflict-exit-code is a whole number, not true"),
        ("[defaults]\nverbose = -1", "FILE: [defaults] verbose is 0 or more, not -1"),
        ("[defaults]\nlabel = 5", "FILE: [defaults] label is a text, not a number"),
        ("[defaults]\ndescendants = 'forget'", "FILE: [defaults] descendants: 'forget' is none of leave, kill"),
        (
            "[backends.p]\nurl = 'local:'\nrequire = 'safe'",
            "FILE: [backends.p] require: 'safe' is none of efficiency, c",
        ),
        ("[journal]\nruns = 0", "FILE: [journal] runs is 1 to 1000000, not 0"),
    ],
)
def test_what_cannot_be_meant(path: Path, text: str, said: str) -> None:
    line = fault(path, text)
    assert said in line
    assert "hunter2" not in line


def test_values_as_they_are_written(path: Path) -> None:
    text = "[defaults]\nttl = 30\nwait = 1.5\nnonblock = false\nconflict-exit-code = 9\nverbose = true\nlabel = 'x'\n"
    (found,) = values(load_text(path, text).layers_for("any"))
    assert found == {
        "ttl": "30",
        "wait": "1.5",
        "nonblock": False,
        "conflict-exit-code": 9,
        "verbose": 1,
        "label": "x",
    }


def test_the_last_pattern_that_matches_counts(path: Path) -> None:
    config = load_text(
        path,
        """
        [locks."*"]
        ttl = 5
        label = "all"
        [locks."Night-?"]
        ttl = 6
        [locks."[ab]*"]
        ttl = 7
        [defaults]
        ttl = 4
        wait = 3
        """,
    )
    for lock, expected in {
        "x": ("5", "3", "all"),
        "Night-1": ("6", "3", "all"),
        "night-1": ("5", "3", "all"),
        "Night-12": ("5", "3", "all"),
        "bee": ("7", "3", "all"),
        None: ("4", "3", None),
    }.items():
        found = tuple(s.value if (s := config.setting(key, lock)) else None for key in ("ttl", "wait", "label"))
        assert found == expected, lock


def test_where_a_value_is_from(path: Path) -> None:
    config = load_text(path, "[locks.'a*']\nttl = 5\n")
    setting = config.setting("ttl", "ab")
    assert setting
    assert (setting.origin, setting.file) == (f'{path}: [locks."a*"] ttl', path)


def test_a_file_given_twice_changes_nothing(path: Path) -> None:
    file = ConfigFile(path, {"backend": "local:", "defaults": {"ttl": 5}})
    once, twice = merged([file], KEYS), merged([file, file], KEYS)
    assert (once.backend, once.setting("ttl", "x")) == (twice.backend, twice.setting("ttl", "x"))


# -- what it costs -----------------------------------------------------------------------------------------------------


def test_what_it_costs_a_run(path: Path) -> None:
    """At most 15 ms of ``run``, on a machine that may be busy: the fastest of a few, in processor time."""
    path.write_text(
        'backend = "p"\n[backends.p]\nurl = "local:"\n[defaults]\nttl = 30\n'
        + "".join(f'[locks."job-{number}-*"]\nwait = {number}\nlabel = "x"\n' for number in range(100))
    )
    path.chmod(0o600)
    script = f"""
import sys, time
import typer.main
from distlock.cli.main import build_app
parameters = typer.main.get_command(build_app(("run",))).commands["run"].params
before, loaded = time.process_time(), set(sys.modules)
from distlock.backend_choice import choose
from distlock.config import load
from distlock.cli.settings import keys_of
choose(None, load({str(path)!r}, lambda: keys_of(parameters)), "job-5-x")
print(time.process_time() - before)
heavy = {{"rich", "prometheus_client", "sqlite3", "socket", "urllib.parse"}} & (set(sys.modules) - loaded)
assert not heavy, heavy
"""
    times = [
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
        for _ in range(5)
    ]
    assert min(times) < 0.015


def test_documentation_has_every_key() -> None:
    text = (Path(__file__).parent.parent / "docs/configuration.md").read_text()
    for key in (*PROFILE, *METRICS, *JOURNAL):
        assert f"`{key}`" in text, key
