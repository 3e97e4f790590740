"""Metrics: what is in them, that documentation, alerts and dashboard speak of no others, and the textfile."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from distlock.journal import Journal, Limits
from distlock.measures import Renewals, Run
from distlock.metrics import metrics_text
from distlock.textfile import textfile_of, write_textfile

DOCS = Path(__file__).parent.parent / "docs"


def a_run(**changes: object) -> Run:
    renewals = Renewals()
    renewals.answered(0.02, 5.0)
    renewals.failures = 2
    run = Run(
        "job", "prod", "0a", 4711, None, 30.0, "succeeded", 1e9, 0.5, 1e9 + 0.5, 12.0, 42, 0, None, 13.2, renewals
    )
    return run._replace(**changes)  # type: ignore[arg-type]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "state/journal.db", Limits(runs=3))


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """By name, and the values of its labels in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_what_is_in_them(journal: Journal) -> None:
    for _ in range(5):
        journal.add(a_run())
    journal.add(a_run(outcome="lost", exit_code=143))
    journal.add(a_run(outcome="busy", granted_at=None, held=None, waited=700.0))
    journal.add_refusal("/srv/data")
    found = samples(metrics_text(journal))
    user = "root" if os.geteuid() == 0 else None
    assert user
    key = ("prod", "job")
    assert found["distlock_runs_total", *key, "succeeded", user] == 5
    assert found["distlock_runs_total", *key, "lost", user] == 1
    assert found["distlock_runs_total", *key, "failed", user] == 0  # from the beginning, or a first one is no increase
    assert found["distlock_acquisitions_total", *key, "granted", user] == 6
    assert found["distlock_acquisitions_total", *key, "busy", user] == 1
    assert found["distlock_leases_lost_total", *key, user] == 1
    assert found["distlock_renewal_failures_total", *key, user] == 12
    assert found["distlock_fencing_refusals_total", "/srv/data", user] == 1
    assert found["distlock_ttl_seconds", *key, user] == 30
    assert found["distlock_last_success_timestamp_seconds", *key, user] == 1e9 + 0.5
    for name, count, total in (
        ("wait_seconds", 7, 703.0),
        ("hold_seconds", 6, 72.0),
        ("renewal_latency_seconds", 6, 0.12),
        ("hold_ttl_ratio", 6, 2.4),
    ):
        assert found[f"distlock_{name}_count", *key, user] == count
        assert found[f"distlock_{name}_sum", *key, user] == pytest.approx(total)
    assert found["distlock_wait_seconds_bucket", "prod", "0.25", "job", user] == 0
    assert found["distlock_wait_seconds_bucket", "prod", "1.0", "job", user] == 6
    assert found["distlock_wait_seconds_bucket", "prod", "+Inf", "job", user] == 7


def test_a_run_without_a_lock(journal: Journal) -> None:
    """Asking for it was in vain, the command ran all the same, and there is nothing to say of a hold."""
    journal.add(a_run(outcome="unlocked", granted_at=None, held=None, token=None))
    journal.add(a_run(outcome="unlocked"))
    found = {key[:-1]: value for key, value in samples(metrics_text(journal)).items()}
    key = ("prod", "job")
    assert found["distlock_acquisitions_total", *key, "unavailable"] == 1
    assert found["distlock_acquisitions_total", *key, "granted"] == 1
    assert found["distlock_runs_total", *key, "unlocked"] == 2
    assert found["distlock_runs_total", *key, "succeeded"] == 0
    assert found["distlock_hold_seconds_count", *key] == 1
    assert ("distlock_last_success_timestamp_seconds", *key) not in found


def test_no_counter_goes_back(journal: Journal) -> None:
    """Over runs that the journal drops."""
    before: dict[tuple[str, ...], float] = {}
    for index in range(12):
        journal.add(a_run(outcome=("succeeded", "lost")[index % 2]))
        now = samples(metrics_text(journal))
        assert all(now[key] >= value for key, value in before.items() if "timestamp" not in key[0])
        before = now
    assert len(journal.runs()) == 3


def test_nothing_has_run(journal: Journal) -> None:
    assert samples(metrics_text(journal)) == {}


@pytest.mark.parametrize("name", ['a "b" \\ c', "Ночной отчёт", "{other}", "a{b='c'}"])
def test_names_are_escaped(journal: Journal, name: str) -> None:
    journal.add(a_run(name=name, backend='p"'))
    names = {key[2] for key in samples(metrics_text(journal)) if key[0] == "distlock_ttl_seconds"}
    assert names == {name}


# -- what is written of them -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names as they can be asked for."""
    journal = Journal(tmp_path_factory.mktemp("journal") / "journal.db")
    journal.add(a_run())
    journal.add_refusal("/srv/data")
    return {key[0] for key in samples(metrics_text(journal))}


def spoken_of(text: str) -> set[str]:
    return set(re.findall(r"\bdistlock_[a-z_]+", text))


def expressions(rules: object) -> Iterator[str]:
    match rules:
        case {"expr": str(expression), **rest}:
            yield expression
            yield from expressions(list(rest.values()))
        case dict():
            yield from expressions(list(rules.values()))
        case list():
            for one in rules:
                yield from expressions(one)


def test_alerts_speak_of_metrics_that_exist(known: set[str]) -> None:
    rules = yaml.safe_load((DOCS / "alerts.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    assert len({alert["alert"] for alert in alerts}) == len(alerts) >= 8
    for alert in alerts:
        assert spoken_of(alert["expr"])
        assert spoken_of(alert["expr"]) <= known, alert["alert"]
        assert balanced(alert["expr"]), alert["alert"]
        assert alert["annotations"]["summary"]
    assert {"distlock_fencing_refusals_total", "distlock_leases_lost_total"} <= spoken_of(str(rules))


def test_the_dashboard_speaks_of_metrics_that_exist(known: set[str]) -> None:
    dashboard = json.loads((DOCS / "grafana.json").read_text())
    asked = list(expressions(dashboard))
    assert len(asked) >= 10
    for expression in asked:
        assert spoken_of(expression)
        assert spoken_of(expression) <= known
        assert balanced(expression), expression
    variables = [variable["query"]["query"] for variable in dashboard["templating"]["list"][1:]]
    assert all(spoken_of(query) <= known for query in variables)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_documentation_lists_every_metric(known: set[str]) -> None:
    families = {re.sub("_(bucket|sum|count)$", "", name) for name in known}
    table = re.findall(r"^\| `(distlock_[a-z_]+)` \|", (DOCS / "monitoring.md").read_text(), re.MULTILINE)
    assert set(table) == families
    assert len(table) == len(families)


def test_bounds_that_alerts_ask_for_exist(journal: Journal) -> None:
    journal.add(a_run())
    bounds = set(re.findall(rb'distlock_hold_ttl_ratio_bucket\{.*?le="([^"]+)"', metrics_text(journal)))
    asked = set(re.findall(rb'le="([^"]+)"', (DOCS / "alerts.yml").read_bytes()))
    assert asked
    assert asked <= bounds


def balanced(expression: str) -> bool:
    pairs = {")": "(", "]": "[", "}": "{"}
    open_ones: list[str] = []
    for character in re.sub(r'"[^"]*"', "", expression):
        if character in pairs.values():
            open_ones.append(character)
        elif character in pairs and (not open_ones or open_ones.pop() != pairs[character]):
            return False
    return not open_ones


# -- the textfile ------------------------------------------------------------------------------------------------------


def test_one_file_a_user(tmp_path: Path) -> None:
    assert textfile_of(str(tmp_path), 1000) == tmp_path / "distlock-1000.prom"
    assert textfile_of(f"{tmp_path}/not-there/", 1000) == tmp_path / "not-there/distlock-1000.prom"
    assert textfile_of(f"{tmp_path}/jobs.prom", 0) == tmp_path / "jobs-0.prom"
    assert textfile_of(f"{tmp_path}/jobs", 0) == tmp_path / "jobs-0.prom"


def test_it_is_replaced_as_a_whole_and_can_be_collected(tmp_path: Path, journal: Journal) -> None:
    before = os.umask(0o077)
    try:
        for _ in range(2):
            journal.add(a_run())
            write_textfile(str(tmp_path / "x.prom"), journal)
    finally:
        os.umask(before)
    path = tmp_path / f"x-{os.geteuid()}.prom"
    assert path.read_bytes() == metrics_text(journal)
    assert path.stat().st_mode & 0o777 == 0o644
    assert [file.name for file in tmp_path.iterdir()] == [path.name, "state"] or len(list(tmp_path.iterdir())) == 2


def test_a_failure_leaves_nothing(tmp_path: Path, journal: Journal) -> None:
    journal.add(a_run())
    (tmp_path / f"x-{os.geteuid()}.prom").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_textfile(str(tmp_path / "x.prom"), journal)
    with pytest.raises(OSError, match="No such file"):
        write_textfile(str(tmp_path / "no/such/x.prom"), journal)
    assert not list(tmp_path.glob("*.new"))


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_metrics import Journal, a_run, write_textfile
journal = Journal(Path(sys.argv[2]), busy=20.0)
for _ in range(5):
    journal.add(a_run())
    write_textfile(sys.argv[3], journal)
"""


def test_many_at_once_lose_nothing(tmp_path: Path, journal: Journal) -> None:
    place = str(tmp_path / "x.prom")
    words = [sys.executable, "-c", WRITER, str(Path(__file__).parent), str(journal.path), place]
    writers = [subprocess.Popen(words) for _ in range(6)]
    assert [writer.wait(90) for writer in writers] == [0] * 6
    found = samples(textfile_of(place, os.geteuid()).read_bytes())
    assert found["distlock_runs_total", "prod", "job", "succeeded", "root"] == 30
