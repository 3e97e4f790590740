"""docs/recipes.md, each recipe as it stands there, with stand-ins for what the reader would bring."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import clocks
from distlock.supervise import tree
from postgres_servers import PostgresServer, postgres
from processes import DISTLOCK, Lab, Stamps, wait_until

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "recipes.md").read_text()
OWN_CLOCK = ("redis", "redlock", "postgresql", "zookeeper")
"""Engines whose server tells the age of a mark."""

TIMER = "A systemd timer"
ROLLING = "A rolling restart, three at a time"
MIGRATION = "A migration in CI/CD"
LEADER = "A leader for a daemon"

shim = clocks.shim


def block(title: str, language: str, word: str = "") -> str:
    """The one of the recipe with this title that has the word in it."""
    section = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    (found,) = [one for one in blocks if word in one]
    _shown.add(found)
    return str(found)


_shown: set[str] = set()


def test_every_block_is_run() -> None:
    _shown.clear()
    for recipe in (("Once a day over the fleet", "crontab"), (ROLLING, "sh"), (LEADER, "sh"), (LEADER, "ini")):
        block(*recipe)
    for word in ("[Service]", "[Timer]"):
        block(TIMER, "ini", word)
    for word in ("# migrate.sh", "export"):
        block(MIGRATION, "sh", word)
    block(MIGRATION, "sql")
    assert _shown == set(re.findall(r"^```\w+\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))


def program(folder: Path, name: str, script: str) -> Path:
    """A stand-in."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def found_in(lab: Lab, *folders: Path) -> dict[str, str]:
    """The environment in which these programs, and distlock, are found by name."""
    return {"PATH": ":".join([*map(str, folders), str(Path(DISTLOCK).parent), lab.environment["PATH"]])}


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


# -- once a day ----------------------------------------------------------------------------------------------------


class Fleet:
    """Three hosts with clocks of their own, and the crontab's line on each."""

    SKEW = (-2 * 3600, 0, 5400)

    def __init__(self, lab: Lab, shim: Path) -> None:
        self._lab = lab
        self._line = block("Once a day over the fleet", "crontab").split(maxsplit=5)[5].replace("\\%", "%")
        self._line = self._line.replace("/usr/local/bin/report", str(lab.folder / "report"))
        self._line = self._line.replace("nightly-report", lab.job)
        self._shifts = [lab.folder / f"shift of host {number}" for number in range(len(self.SKEW))]
        self._environments = [
            found_in(lab)
            | {"HOME": str(lab.folder / f"host {number}"), "DISTLOCK_STATE_DIR": str(lab.folder / f"state {number}")}
            | clocks.with_shift(shim, time.CLOCK_REALTIME, shift)
            for number, shift in enumerate(self._shifts)
        ]
        self.set_clocks(0)

    def set_clocks(self, forward: int) -> None:
        for shift, skew in zip(self._shifts, self.SKEW, strict=True):
            shift.write_text(str(skew + forward))

    def at_three_o_clock(self) -> list[int]:
        """All at once: codes. Whoever does not fail is silent."""
        runs = [self._lab.spawn(["/bin/sh", "-c", self._line], environment) for environment in self._environments]
        said = [run.communicate(timeout=60) for run in runs]
        assert said == [(b"", b"")] * len(runs)
        return [run.returncode for run in runs]


def test_once_a_day_over_hosts_with_skewed_clocks(each_lab: Lab, shim: Path) -> None:
    lab = each_lab
    log = lab.folder / "log"
    program(lab.folder, "report", f"echo ran >> '{log}'; sleep 0.3")
    fleet = Fleet(lab, shim)
    assert fleet.at_three_o_clock() == [0, 0, 0]
    assert lines(log) == ["ran"]
    assert fleet.at_three_o_clock() == [0, 0, 0]
    assert lines(log) == ["ran"], "whoever comes late skips it"
    fleet.set_clocks(86400)
    assert fleet.at_three_o_clock() == [0, 0, 0]
    # A server with a clock of its own knows that no day has gone by, whatever all hosts believe.
    assert len(lines(log)) == (1 if lab.backend.startswith(OWN_CLOCK) else 2)


def test_where_it_fails_the_next_host_does_it(lab: Lab, shim: Path) -> None:
    log = lab.folder / "log"
    program(lab.folder, "report", f"echo ran >> '{log}'; test $(wc -l < '{log}') != 1")
    assert sorted(Fleet(lab, shim).at_three_o_clock()) == [0, 0, 1]
    assert lines(log) == ["ran", "ran"]


# -- a rolling restart ---------------------------------------------------------------------------------------------


def restarting(lab: Lab, hosts: int, systemctl: str) -> tuple[list[int], list[str]]:
    """The codes of all hosts, and what happened in which order: + is a restart, - is healthy again."""
    log = lab.folder / "log"
    tools = lab.folder / "tools"
    program(tools, "systemctl", systemctl.format(log=log))
    # Healthy at the second look.
    program(tools, "curl", f'[ -e "$HOST.asked" ] && echo - >> {log} && exit; touch "$HOST.asked"; exit 22')
    script = block(ROLLING, "sh")
    names = [{"HOST": f"h{number}"} for number in range(hosts)]
    runs = [lab.spawn(["/bin/sh", "-c", script], found_in(lab, tools) | name) for name in names]
    return [run.wait(60) for run in runs], lines(log)


def test_a_rolling_restart_three_at_a_time(two_labs: Lab) -> None:
    codes, happened = restarting(two_labs, 8, '[ "$*" = "restart app" ] && echo + >> {log}')
    assert codes == [0] * 8
    assert (happened.count("+"), happened.count("-")) == (8, 8)
    at_once = [happened[:end].count("+") - happened[:end].count("-") for end in range(1, len(happened) + 1)]
    assert max(at_once) == 3


def test_a_restart_that_fails_frees_its_place(two_labs: Lab) -> None:
    codes, happened = restarting(two_labs, 5, 'echo + >> {log}; [ "$HOST" != h0 ]')
    assert sorted(codes) == [0, 0, 0, 0, 1]
    assert (happened.count("+"), happened.count("-")) == (5, 4)


# -- a migration ---------------------------------------------------------------------------------------------------


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with postgres({"fsync": "on"}) as server:
        yield server


@pytest.fixture
def pipeline(tmp_path: Path, database: PostgresServer) -> Iterator[Lab]:
    """What a pipeline has checked out: the scripts, and steps that cannot be done twice."""
    made = Lab(tmp_path, "local:")  # the recipe says better
    made.environment |= found_in(made) | {"DATABASE_URL": database.url, "RELEASE": "2026.12.1"}
    program(tmp_path, "migrate.sh", block(MIGRATION, "sh", "# migrate.sh").removeprefix("#!/bin/sh\n"))
    (tmp_path / "fence.sql").write_text(block(MIGRATION, "sql"))
    (tmp_path / "migrations").mkdir()
    for number in (1, 2):
        (tmp_path / "migrations" / f"{number}.sql").write_text(f"CREATE TABLE step_{number} (); SELECT pg_sleep(0.2);")
    yield made
    made.close()


def test_a_migration_of_two_pipelines_is_done_once(pipeline: Lab, database: PostgresServer) -> None:
    script = block(MIGRATION, "sh", "export")
    runs = [pipeline.spawn(["/bin/sh", "-euc", script]) for _ in range(2)]
    assert [(run.wait(60), run.stderr and run.stderr.read()) for run in runs] == [(0, b"")] * 2
    assert database.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'step_%%'") == [2]
    (token,) = database.sql("SELECT token FROM fence WHERE resource = 'schema'")
    assert token > 0
    pipeline.environment["RELEASE"] = "2026.12.2"
    again = pipeline.spawn(["/bin/sh", "-euc", script])
    assert again.wait(30) == 3, "another release is migrated, and these steps cannot be repeated"


def test_a_step_of_a_run_that_is_late_changes_nothing(pipeline: Lab, database: PostgresServer) -> None:
    pipeline.environment["DISTLOCK_BACKEND"] = database.url
    assert pipeline.run("migrate", "--", "./migrate.sh").returncode == 0
    (pipeline.folder / "migrations" / "3.sql").write_text("CREATE TABLE step_3 ();")
    (seen,) = database.sql("SELECT token FROM fence")
    for token in (seen - 1, seen, seen + 1):  # steps 1 and 2 cannot be repeated: all of them end there
        late = f"DISTLOCK_FENCING_TOKEN={token} exec ./migrate.sh"
        done = pipeline.run("migrate", "--", "sh", "-c", late)
        assert done.returncode == 3
        assert (b"division by zero" in done.stderr) == (token < seen), done.stderr
    assert database.sql("SELECT to_regclass('step_3')::text") == [None]
    assert database.sql("SELECT token FROM fence") == [seen]


# -- a leader ------------------------------------------------------------------------------------------------------


class Host:
    """One that runs the scheduler when it leads, and what the scheduler has written there."""

    def __init__(self, lab: Lab, name: str) -> None:
        self._lab = lab
        tools = lab.folder / name
        command, self.stamps = lab.stamper(name=f"stamps of {name}")
        self.scheduler = program(tools, "scheduler", f'[ "$*" = --foreground ] && exec {shlex.join(command)}')
        self._environment = found_in(lab, tools)

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return self._lab.spawn(command, self._environment)

    def sees_a_waiter(self) -> bool:
        """In the queue of any lock that is held."""
        shown = subprocess.run(
            [DISTLOCK, "status", "--json"],
            env=self._lab.environment | self._environment,
            capture_output=True,
            check=True,
        ).stdout
        return any(lock["waiters"] for lock in json.loads(shown)["locks"])


@pytest.fixture
def hosts(two_labs: Lab) -> tuple[Host, Host]:
    return Host(two_labs, "a"), Host(two_labs, "b")


def takes_over(new: Stamps, old: Stamps) -> None:
    """What is old has been dead before."""
    before = len(new.lines())
    wait_until(lambda: len(new.lines()) > before, 20)
    assert new.lines()[before][1] > old.last()
    assert not old.go_on()


def test_a_leader_in_a_loop(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    script = block(LEADER, "sh")
    loop_of_a = a.start(["/bin/sh", "-c", script])
    a.stamps.writer()
    loop_of_b = b.start(["/bin/sh", "-c", script])
    (run_of_a,) = wait_until(lambda: tree.children(loop_of_a.pid))
    wait_until(lambda: tree.children(loop_of_b.pid))
    tree_of_a = tree.identify(run_of_a)
    assert tree_of_a
    wait_until(b.sees_a_waiter)
    tree.send([tree_of_a], signal.SIGKILL)
    takes_over(b.stamps, a.stamps)
    loop_of_b.terminate()
    assert loop_of_b.wait(10) in (0, 128 + signal.SIGTERM)
    takes_over(a.stamps, b.stamps)
    loop_of_a.terminate()
    loop_of_a.wait(10)
    assert not a.stamps.go_on()


def unit(title: str = LEADER) -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=True, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment,method-assign]
    parsed.read_string(block(title, "ini", "[Service]"))
    return parsed


def test_systemd_reads_the_units(tmp_path: Path) -> None:
    """With distlock, and the job, where they are here."""
    units = {
        "scheduler.service": block(LEADER, "ini"),
        "backup.service": block(TIMER, "ini", "[Service]"),
        "backup.timer": block(TIMER, "ini", "[Timer]"),
    }
    for name, text in units.items():
        here = text.replace("ExecStart=distlock ", f"ExecStart={DISTLOCK} ")
        (tmp_path / name).write_text(here.replace("/usr/local/bin/backup", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(str(tmp_path / name) for name in units)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert not [name for name in units if name in done.stderr]


# -- a timer -------------------------------------------------------------------------------------------------------


def test_a_timer_on_three_hosts(lab: Lab) -> None:
    """One makes the backup; the others end with 75 meanwhile, which counts as a success, and with 0 afterwards."""
    service = unit(TIMER)["Service"]
    gate = lab.folder / "gate"
    job = program(lab.folder, "backup", f"echo done >> {lab.folder}/done; until [ -e {gate} ]; do sleep 0.05; done")
    line = service["ExecStart"].replace("/usr/local/bin/backup", str(job))
    runs = [lab.spawn(["/bin/sh", "-c", line], found_in(lab)) for _ in range(3)]
    wait_until(lambda: [run.poll() for run in runs].count(75) == 2, 30)
    gate.touch()
    said = [run.communicate(timeout=60) for run in runs]
    assert said == [(b"", b"")] * 3
    assert sorted(run.returncode for run in runs) == [0, 75, 75]
    assert service["SuccessExitStatus"] == "75"
    late = lab.spawn(["/bin/sh", "-c", line], found_in(lab))
    assert late.wait(30) == 0
    assert lines(lab.folder / "done") == ["done"]


def test_stopping_the_unit_of_a_timer_ends_the_job_once(lab: Lab) -> None:
    """KillMode=mixed: the TERM goes to distlock alone."""
    service = unit(TIMER)["Service"]
    assert service["KillMode"] == "mixed"
    job = program(lab.folder, "backup", "trap 'echo TERM; exit 0' TERM; echo started; while :; do sleep 0.1; done")
    run = lab.spawn(
        ["/bin/sh", "-c", "exec " + service["ExecStart"].replace("/usr/local/bin/backup", str(job))], found_in(lab)
    )
    assert run.stdout
    assert run.stdout.readline() == b"started\n"
    run.terminate()
    assert run.stdout.read() == b"TERM\n"
    assert run.wait(20) == 0


def test_a_leader_in_a_unit(hosts: tuple[Host, Host]) -> None:
    """As systemd would treat it: a main process that is started again whenever it ends, and a TERM to it alone."""
    service = unit()["Service"]
    assert (service["Restart"], service["KillMode"]) == ("always", "mixed")
    words = shlex.split(service["ExecStart"])
    a, b = hosts
    main_of_a = a.start([DISTLOCK, *words[1:]])
    a.stamps.writer()
    main_of_b = b.start([DISTLOCK, *words[1:]])
    wait_until(b.sees_a_waiter)
    main_of_a.kill()
    takes_over(b.stamps, a.stamps)
    again = a.start([DISTLOCK, *words[1:]])
    wait_until(a.sees_a_waiter)
    main_of_b.terminate()
    assert main_of_b.wait(float(service["TimeoutStopSec"])) == -signal.SIGTERM
    takes_over(a.stamps, b.stamps)
    again.terminate()
    assert again.wait(float(service["TimeoutStopSec"])) == -signal.SIGTERM
