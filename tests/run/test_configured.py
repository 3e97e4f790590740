"""``--config`` and what a configuration does to ``run`` and the operators' commands; ``distlock config``."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import DISTLOCK, Lab, wait_until
from redis_fixtures import served
from servers import RedisServer


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path, "")
    yield made
    made.close()


def configure(lab: Lab, text: str, name: str = ".config/distlock/config.toml") -> Path:
    path = lab.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


def distlock(lab: Lab, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [DISTLOCK, *arguments],
        env=lab.environment | environment,
        cwd=lab.folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def refused(lab: Lab, *arguments: str, code: int = 78) -> str:
    done = lab.run(*arguments, "n", "touch", "started")
    line = done.stderr.decode()
    assert (done.returncode, done.stdout, line.count("\n")) == (code, b"", 1), line
    assert not (lab.folder / "started").exists()
    return line


def ttl_of(lab: Lab, *arguments: str, lock: str = "n") -> str:
    done = lab.run(*arguments, lock, "sh", "-c", 'printf %s "$DISTLOCK_TTL"')
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_the_command_line_then_the_lock_then_the_defaults(lab: Lab) -> None:
    configure(lab, '[defaults]\nttl = 40\n[locks."night-*"]\nttl = "50s"\n[locks."night-x"]\nttl = "1m"\n')
    assert [ttl_of(lab, lock=lock) for lock in ("n", "night-a", "night-x")] == ["40", "50", "60"]
    assert ttl_of(lab, "--ttl", "30", lock="night-x") == "30"
    other = configure(lab, "[defaults]\nttl = 41\n", "other.toml")
    assert ttl_of(lab, "--config", str(other), lock="night-x") == "41"
    assert ttl_of(lab, "--config", "other.toml") == "41"
    assert ttl_of(lab, "--config", "/dev/null") == "30"


def test_every_option_of_run_can_be_set(lab: Lab) -> None:
    """What `config init` writes, each setting without its # in turn, is taken as it is and shown as what counts."""
    path = lab.folder / "new.toml"
    assert distlock(lab, "config", "init", "--config", str(path)).stdout == f"{path}\n"
    text = path.read_text()
    before, _, defaults = text.partition("[defaults]\n")
    settings = re.findall(r"^# ([a-z-]+ = .+)$", defaults.partition("\n\n")[0], re.MULTILINE)
    help_text = distlock(lab, "run", "--help").stdout
    assert len(settings) >= 12
    for setting in settings:
        key = setting.partition(" ")[0]
        assert f"--{key}" in help_text
        path.write_text(f"{before}[defaults]\n{setting}\n")
        shown = distlock(lab, "config", "--config", str(path)).stdout
        assert re.search(rf"^\[defaults\] {key} .* {path}$", shown, re.MULTILINE), setting
        environment = {"DISTLOCK_BACKEND": "local:"}
        done = lab.run("--config", str(path), "n", "true", environment=environment)
        assert (done.returncode, done.stdout) == (0, b""), (setting, done.stderr)


def test_all_that_init_writes_can_be_used(lab: Lab) -> None:
    path = lab.folder / "new.toml"
    distlock(lab, "config", "init", "--config", str(path))
    lines = [re.sub(r"^# (?=\[|[a-z_-]+ = )", "", line) for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines) + "\n")
    (lab.folder / "redis.password").write_text("x\n")
    (lab.folder / "redis.password").chmod(0o600)
    done = distlock(lab, "config", "--config", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "[metrics] textfile" in done.stdout


def test_init_writes_over_nothing(lab: Lab) -> None:
    home = lab.folder / "config"
    done = distlock(lab, "config", "init", XDG_CONFIG_HOME=str(home), DISTLOCK_CONFIG=str(home / "a/b.toml"))
    path = home / "a/b.toml"
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}\n", "")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.write_text("mine")
    done = distlock(lab, "config", "init", "--config", str(path))
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr == f"distlock: {path} exists; nothing was written\n"
    assert path.read_text() == "mine"
    done = distlock(lab, "config", "init", "--config", "/dev/null/x")
    assert (done.returncode, done.stderr.count("\n")) == (78, 1)
    assert distlock(lab, "config", "nonsense").returncode == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[defaults]\nttl = \n", r"config\.toml:2:7: "),
        ("[defaults]\nttll = 5\n", r"config\.toml: \[defaults\]: unknown key 'ttll'; did you mean ttl\?"),
        ("[defaults]\nmax-holders = 0\n", r"max-holders is 1 to 1000, not 0"),
        ("[defaults]\nmax-holders = 1001\n", r"max-holders is 1 to 1000, not 1001"),
        ("[defaults]\nmax-holders = '5'\n", r"max-holders is a whole number, not a text"),
        ("[defaults]\nmax-holder = 5\n", r"did you mean max-holders\?"),
        ("[defaults]\nconfig = 'x'\n", r"unknown key 'config'"),
        ("[defaults]\nshared = true\n", r"unknown key 'shared'"),
        ("[defaults]\ntimeout = 5\n", r"did you mean wait\?"),
        ("[defaults]\nttl = 1\n", r"\[defaults\] ttl '1' is too short"),
        ("[defaults]\nkill-after = 11\n", r"\[defaults\] kill-after '11' is more than a third"),
        ("[defaults]\nkill-signal = 'NOPE'\n", r"\[defaults\] kill-signal: 'NOPE' is no signal"),
        ("[defaults]\nwait = 5\nnonblock = true\n", r"nonblock and .*wait '5' contradict"),
        ("[defaults]\ndescendants = 'forget'\n", r"'forget' is none of leave, kill, wait"),
        ("[backends.prod]\nurl = 'local:'\n", r"backends are defined \(prod\), but none is chosen"),
        ("backend = 'prd'\n[backends.prod]\nurl = 'local:'\n", r"no backend is named 'prd'; did you mean prod\?"),
    ],
)
def test_a_configuration_that_cannot_work_starts_nothing(lab: Lab, text: str, said: str) -> None:
    configure(lab, text)
    assert re.search(said, refused(lab))


def test_every_command_reads_it(lab: Lab) -> None:
    path = configure(lab, "[defaults]\nttll = 5\n")
    for command in (["status"], ["inspect", "n"], ["config"]):
        done = distlock(lab, *command)
        assert (done.returncode, done.stdout) == (78, ""), command
        assert f"{path}: [defaults]: unknown key 'ttll'" in done.stderr
        assert distlock(lab, *command, "--config", "/dev/null").returncode == 0


@pytest.mark.parametrize(
    ("settings", "options", "waits"),
    [
        ("nonblock = true", [], False),
        ("wait = 0", [], False),
        ("nonblock = true", ["-w", "0.2"], True),
        ("wait = '0.2s'", [], True),
        ("wait = '1h'", ["-n"], False),
    ],
)
def test_waiting_or_not(lab: Lab, settings: str, options: list[str], waits: bool) -> None:
    """Of -n and --wait the one that is nearer to the command counts, and the other one contradicts nothing."""
    configure(lab, f"[defaults]\n{settings}\nconflict-exit-code = 9\n")
    holder = lab.start("n", "sleep", "60")
    wait_until(lambda: "held" in distlock(lab, "status").stdout)
    done = lab.run(*options, "n", "touch", "started")
    assert (done.returncode, b"not had within 200ms" in done.stderr) == (9, waits)
    assert holder.poll() is None


def test_quiet_in_the_file_and_verbose_on_the_command_line(lab: Lab) -> None:
    configure(lab, "[defaults]\nquiet = true\n")
    script = "sleep 60 >&- 2>&- & echo $!"
    for options, told in (([], False), (["-v"], True)):
        done = lab.run(*options, "n", "sh", "-c", f"{script} >pid")
        assert (b"left 1 of its processes running" in done.stderr) is told
        subprocess.run(["kill", (lab.folder / "pid").read_text().strip()], check=True)


def test_a_profile(lab: Lab, tmp_path: Path) -> None:
    for server in served(tmp_path / "redis"):
        server.command("ACL", "SETUSER", "job", "on", ">hunter2", "~*", "&*", "+@all")
        profile_on(lab, server)


def profile_on(lab: Lab, server: RedisServer) -> None:
    """Chosen by the file, by name, for one lock; with its password in a file of its own."""
    password = configure(lab, "hunter2\n", ".config/distlock/redis.password")
    here = f"[backends.here]\nurl = 'local://{lab.folder}/here'\n"
    prod = f"[backends.prod]\nurl = 'redis://job@{server.place}'\npassword_file = 'redis.password'\n"
    configure(lab, f"backend = 'here'\n{here}{prod}[locks.'prod-*']\nbackend = 'prod'\n")
    script = 'grep -o \'"backend": "[^"]*"\' "$DISTLOCK_LEASE"'

    def used(*arguments: str, **environment: str) -> str:
        done = lab.run(*arguments, "sh", "-c", script, environment=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode().split('"')[3]

    assert used("n") == "here"
    assert used("prod-n") == "prod"
    assert used("-b", "prod", "n") == "prod"
    assert used("n", DISTLOCK_BACKEND="prod") == "prod"
    assert used("-b", "here", "prod-n") == "here"
    shown = json.loads(distlock(lab, "status", "-b", "prod", "--all", "--json").stdout)
    assert (shown["backend"], [lock["name"] for lock in shown["locks"]]) == ("prod", ["n", "prod-n"])
    assert "distlock:{lock:prod-n}" in distlock(lab, "inspect", "prod-n").stdout
    password.chmod(0o644)
    line = refused(lab, "-b", "prod")
    assert f"{password} can be read by others" in line
    password.chmod(0o600)
    password.write_text("wrong\n")
    assert "hunter2" not in (line := refused(lab, "-b", "prod", code=77))
    assert "wrong" not in line.replace("wrong password", "")


def test_the_class_that_is_asked_for(lab: Lab, tmp_path: Path) -> None:
    """By the run, by the lock, or by the backend's profile: the highest counts."""
    for server in served(tmp_path / "redis"):
        profile = f"backend = 'r'\n[backends.r]\nurl = '{server.url}'\n"
        for more in ("require = 'correctness'", "[defaults]\nrequire = 'correctness'"):
            configure(lab, f"{profile}{more}\n")
            assert refused(lab, code=77).startswith("distlock: r is for efficiency locks, not for --require correctnes")
        assert lab.run("--require", "efficiency", "n", "true").returncode == 0  # over [defaults]
        configure(lab, f"{profile}require = 'correctness'\n[locks.n]\nrequire = 'efficiency'\n")
        assert "efficiency locks" in refused(lab, code=77)
    configure(lab, "[defaults]\nrequire = 'correctness'\n")
    assert "no backend is named" in refused(lab, code=77)
    configure(lab, "backend = 'local:'\n[defaults]\nrequire = 'correctness'\n")
    assert lab.run("n", "true").returncode == 0


def test_what_config_shows(lab: Lab) -> None:
    path = configure(
        lab,
        """
        backend = "prod"
        [backends.prod]
        url = "redis://job:hunter2@redis/0?password=hunter2"
        [defaults]
        ttl = 60
        [locks."a*"]
        wait = "5s"
        backend = "redis://:hunter2@other"
        [metrics]
        textfile = "/var/lib/x"
        """,
    )
    done = distlock(lab, "config")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line[:26].strip(): line[26:].split() for line in done.stdout.splitlines()}
    assert rows["backend"] == ["prod", str(path)]
    assert "hunter2" not in done.stdout
    assert re.search(
        rf"^\[backends\.prod\] url +redis://job:\*\*\*@redis/0\?\*\*\* +{path}$", done.stdout, re.MULTILINE
    )
    assert re.search(rf"^\[defaults\] ttl +60 +{path}$", done.stdout, re.MULTILINE)
    assert re.search(r"^\[defaults\] kill-signal +TERM +default$", done.stdout, re.MULTILINE)
    assert re.search(rf'^\[locks\."a\*"\] wait +5s +{path}$', done.stdout, re.MULTILINE)
    shown = json.loads(distlock(lab, "config", "--json", "--lock", "ab", DISTLOCK_PASSWORD="hunter2").stdout)
    assert list(shown) == ["version", "files", "settings"]
    assert (shown["version"], shown["files"]) == (1, [str(path)])
    found = {(row["table"], row["key"]): (row["value"], row["source"]) for row in shown["settings"]}
    assert found["", "backend"] == ("redis://:***@other", str(path))
    assert found["", "password"] == ("***", "DISTLOCK_PASSWORD")
    assert found["run", "wait"] == ("5s", str(path))
    assert found["run", "ttl"] == ("60", str(path))
    assert found["run", "label"] == (None, "default")
    assert found["metrics", "textfile"] == ("/var/lib/x", str(path))
    assert "hunter2" not in json.dumps(shown)


def test_a_broken_secret_is_not_shown_with_its_place(lab: Lab) -> None:
    for text in ("backend = 'redis://:hunter2@h\n", "backend = redis://:hunter2@h\n", "hunter2\n", "[hunter2\n"):
        path = configure(lab, text)
        assert re.fullmatch(rf"distlock: {path}:[12]:\d+: [^\n]*\n", line := refused(lab))
        assert "hunter2" not in line
