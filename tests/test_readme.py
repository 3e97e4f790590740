"""What README says is what the program does."""

from __future__ import annotations

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


def console() -> list[str]:
    return [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]


def test_who_holds_what(lab: Lab) -> None:
    run = lab.start("nightly-job", "--", "sh", "-c", "echo started; exec sleep 60")
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    shown = []
    for line in console()[1:4]:
        assert line.startswith("distlock ")
        script = line.replace("distlock", DISTLOCK, 1)
        done = subprocess.run(["sh", "-c", script], env=lab.environment, capture_output=True, text=True, check=True)
        shown.append(done.stdout)
    assert f":{run.pid}" in shown[0]
    assert f":{run.pid}" in shown[1]
    assert shown[2] == "still running\n"


def test_main_job(lab: Lab) -> None:
    command = console()[0]
    script = lab.folder / "backup.sh"
    script.write_text("#!/bin/sh\necho $DISTLOCK_NAME\n")
    script.chmod(0o755)
    assert shlex.split(command)[0] == "distlock"
    done = lab.run(*shlex.split(command)[2:])
    assert (done.returncode, done.stdout, done.stderr) == (0, b"nightly-job\n", b"")


CRONTAB = [re.split(r"\s{2,}", line, maxsplit=1)[1] for line in blocks("crontab")[0].splitlines() if line[0] != "#"]


@pytest.mark.parametrize("line", CRONTAB)
def test_crontab_line(lab: Lab, line: str) -> None:
    """The line as cron gives it to a shell, with a stand-in for the job."""
    words = shlex.split(line)
    job = lab.folder / "job"
    job.write_text("#!/bin/sh\necho ran\n")
    job.chmod(0o755)
    done = lab.run(*words[2:-1], str(job))
    assert (words[:2], done.returncode, done.stdout, done.stderr) == (["distlock", "run"], 0, b"ran\n", b"")


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
    doctor, purge, version = (shlex.split(line)[1:] for line in console()[4:7])
    shown = {}
    for words in (doctor, purge, version):
        done = subprocess.run([DISTLOCK, *words], env=lab.environment, capture_output=True, text=True, check=False)
        assert done.returncode in (0, 1)
        assert done.stderr == ""
        shown[words[0]] = done.stdout
    assert "--ttl 30s: a dead host's lock is free again within 32s" in shown["doctor"]
    assert shown["purge"] == "", "90 days have not gone by"
    assert shown["--version"].startswith("distlock ")


def test_has_it_run(lab: Lab) -> None:
    success, history, metrics = console()[7:]

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
