"""What README says is what the program does."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from distlock.cli.exits import TABLE
from distlock.cli.main import build_app
from processes import DISTLOCK, Lab

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_exit_codes_are_the_table() -> None:
    section = README.partition("## Exit codes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    assert tuple(rows[1:]) == TABLE or tuple(rows[2:]) == TABLE


def test_help_shows_the_same_table() -> None:
    shown = subprocess.run([DISTLOCK, "run", "--help"], capture_output=True, text=True, check=True).stdout
    section = shown.partition("Exit codes:\n")[2]
    assert tuple(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in section.splitlines()) == tuple(
        [code, meaning] for code, meaning in TABLE
    )


def test_options_are_the_parsers() -> None:
    section = README.partition("## Options of `run`")[2].partition("\n## ")[0]
    told = set(
        re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", "\n".join(re.findall(r"^\| (.+?) \|", section, re.MULTILINE)))
    )
    command = typer.main.get_command(build_app()).commands["run"]  # type: ignore[attr-defined]
    known = {o for p in command.params if not getattr(p, "hidden", False) for o in p.opts if o.startswith("-")}
    assert told == known - {"-h", "--help"}


def test_set_up_line_runs_the_main_job(tmp_path: Path) -> None:
    """The line itself, in a clone; its pip takes the dependencies from where they are installed already."""
    (line,) = [block for block in blocks("sh") if "venv" in block]
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(tmp_path / "clone")], check=True)
    # The environment's own site-packages stand in for the network: pip finds every requirement satisfied there.
    (site,) = (Path(sys.prefix) / "lib").glob("python*/site-packages")
    python3 = tmp_path / "python3"
    python3.write_text(
        f'#!/bin/sh\n{shlex.quote(sys.executable)} "$@"\n'
        f'for folder in .venv/lib/python*/site-packages; do echo {shlex.quote(str(site))} > "$folder/near.pth"; done\n'
    )
    python3.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=tmp_path / "clone",
        env={
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "HOME": str(tmp_path),
            "DISTLOCK_STATE_DIR": str(tmp_path / "state"),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "backed up\n", "")


def section(title: str) -> str:
    """Up to the next one of its rank."""
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands(title: str) -> list[str]:
    """Of a section, as a person types them: `console` blocks with a prompt, `sh` blocks without; no comments."""
    found = re.findall(r"^```(console|sh)\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)
    lines = [(language, line.partition("   #")[0].rstrip()) for language, block in found for line in block.splitlines()]
    typed = [line.removeprefix("$ ") for language, line in lines if language == "sh" or line.startswith("$ ")]
    _typed.update(typed)
    return typed


_typed: set[str] = set()


def test_every_command_is_run_by_a_test_of_this_file() -> None:
    """Of the sections that follow; the first ones have tests of their own above."""
    sections = [
        "Cron",
        "What the command finds",
        "Who holds what",
        "Is it fit for locks",
        "Has it run, and how",
        "Fencing",
    ]
    _typed.clear()
    for title in sections:
        commands(title)
    everything = {
        line.removeprefix("$ ").partition("   #")[0].rstrip()
        for language in ("console", "sh")
        for block in blocks(language)
        for line in block.splitlines()
    }
    others = {line for line in everything - _typed if "venv" not in line and line != "make test"}
    assert others == {"distlock run --ttl 30 nightly-job -- ./backup.sh"}


def shell(lab: Lab, line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a person types it, with `distlock` and the lab's folder in PATH."""
    path = f"{lab.folder}:{Path(DISTLOCK).parent}:{lab.environment['PATH']}"
    return subprocess.run(
        ["sh", "-c", line],
        env={**lab.environment, "PATH": path, **environment},
        cwd=lab.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def stand_in(lab: Lab, name: str, script: str) -> None:
    (lab.folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (lab.folder / name).chmod(0o755)


def test_who_holds_what(lab: Lab) -> None:
    run = lab.start("nightly-job", "--", "sh", "-c", "echo started; exec sleep 60")
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    status, inspect, quiet, watch, release = commands("Who holds what")
    for line in (status, inspect):
        assert f":{run.pid}" in shell(lab, line).stdout
    assert shell(lab, quiet).stdout == "still running\n"
    watching = lab.spawn([DISTLOCK, *shlex.split(watch)[1:]])
    assert watching.stdout
    assert any(f":{run.pid}".encode() in watching.stdout.readline() for _ in range(3))

    stale = shell(lab, release)
    assert stale.returncode == 65
    assert run.poll() is None
    token = json.loads(shell(lab, f"{inspect} --json").stdout)["token"]
    assert shell(lab, re.sub(r"\d{6,}", str(token), release)).returncode == 0
    assert run.wait(20) == 76


def test_main_job(lab: Lab) -> None:
    command = README.partition("```console\n$ ")[2].partition("\n")[0]
    script = lab.folder / "backup.sh"
    script.write_text("#!/bin/sh\necho $DISTLOCK_NAME\n")
    script.chmod(0o755)
    assert shlex.split(command)[0] == "distlock"
    done = lab.run(*shlex.split(command)[2:])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"nightly-job\n", b"")


CRONTAB = [re.split(r"\s{2,}", line, maxsplit=1)[1] for line in blocks("crontab")[0].splitlines() if line[0] != "#"]


@pytest.mark.parametrize("line", CRONTAB)
def test_crontab_line(lab: Lab, line: str) -> None:
    """The line as cron gives it to a shell, with a stand-in for the job, and a `prod` in the configuration."""
    words = shlex.split(line)
    stand_in(lab, "job", "echo ran")
    config = lab.folder / "config.toml"
    config.write_text(f'backend = "prod"\n[backends.prod]\nurl = "{lab.backend}"\n')
    done = lab.run(*words[2:-1], str(lab.folder / "job"), environment={"DISTLOCK_CONFIG": str(config)})
    assert (words[:2], done.returncode, done.stdout, done.stderr) == (["distlock", "run"], 0, b"ran\n", b"")


def test_a_lock_for_correctness(lab: Lab) -> None:
    (line,) = commands("Cron")
    stand_in(lab, "migrate.sh", "echo migrated")
    assert shell(lab, line).stdout == "migrated\n"
    assert shell(lab, line, DISTLOCK_BACKEND="redis://127.0.0.1:1").returncode == 77


def test_asking_before_a_side_effect(lab: Lab) -> None:
    (line,) = commands("What the command finds")
    stand_in(lab, "upload", 'echo "uploads $1"')
    assert shell(lab, f"distlock run job -c {shlex.quote(line)}").stdout == "uploads chunk-17\n"
    assert shell(lab, line).returncode == 76


def test_fencing(lab: Lab) -> None:
    fence, drill = commands("Fencing")
    stand_in(lab, "rsync", "echo copies")
    assert shell(lab, f"distlock run job -c {shlex.quote(fence)}").stdout == "copies\n"
    assert shell(lab, fence, DISTLOCK_FENCING_TOKEN="1").returncode == 65
    shown = shell(lab, drill)
    assert (shown.returncode, shown.stdout.count("proven:")) == (0, 2)


def test_script_that_takes_its_lock_itself(lab: Lab) -> None:
    (first,) = re.findall(r"^# (\[ .+)$", blocks("crontab")[0], re.MULTILINE)
    script = lab.folder / "report"
    script.write_text(f'#!/bin/sh\n{first}\necho "$DISTLOCK_NAME $1"\n'.replace("distlock run", f"{DISTLOCK} run"))
    script.chmod(0o755)
    done = subprocess.run(
        [str(script), "a b"], env=lab.environment, capture_output=True, check=False, start_new_session=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"report a b\n", b"")


def test_is_it_fit(lab: Lab) -> None:
    """The backend is named in the environment alone, which is a note and no warning."""
    assert lab.run("nightly-job", "false").returncode == 1
    doctor, purge, version = (shlex.split(line)[1:] for line in commands("Is it fit for locks"))
    shown = {}
    for words in (doctor, purge, version):
        done = subprocess.run([DISTLOCK, *words], env=lab.environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1)
        assert done.stderr == ""
        shown[words[0]] = done.stdout
    assert "--ttl 58s: a dead host's lock is free again within 1m" in shown["doctor"]
    assert shown["purge"] == "", "90 days have not gone by"
    assert shown["--version"].startswith("distlock ")


def test_has_it_run(lab: Lab) -> None:
    success, history, metrics = commands("Has it run, and how")

    def shown(line: str) -> str:
        script = line.replace("distlock", DISTLOCK, 1)
        return subprocess.run(
            ["sh", "-c", script], env=lab.environment, capture_output=True, text=True, check=True
        ).stdout

    assert shown(success) == "no backup since yesterday\n"
    assert lab.run("nightly-job", "true").returncode == 0
    assert shown(success) == ""
    assert "nightly-job  succeeded" in shown(history)
    assert "distlock_runs_total{" in shown(metrics)
