"""docs/fencing.md: its commands and statements do what it says."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from processes import DISTLOCK, Lab

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "fencing.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_statements_refuse_a_stale_token() -> None:
    account, table = blocks("sql")
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER, fence INTEGER NOT NULL DEFAULT 0)")
    database.execute("CREATE TABLE fence (resource TEXT PRIMARY KEY, token INTEGER NOT NULL DEFAULT 0)")
    database.execute("INSERT INTO account (id, balance) VALUES (7, 100)")
    database.execute("INSERT INTO fence (resource) VALUES ('ledger')")
    for statement in (account, table):
        changed = [
            database.execute(statement.replace("34", token)).rowcount for token in ("34", "34", "33", "35", "34")
        ]
        assert changed == [1, 1, 0, 1, 0]
    database.close()


def test_the_commands(lab: Lab) -> None:
    """With the examples' tools and places for real ones of the lab."""
    found = "".join(blocks("sh"))
    lines = [line.partition("#")[0].strip() for line in found.splitlines() if line.strip()]
    assert lines[0] == "distlock check --need 30s || exit 76"
    assert lab.run("--ttl", "40", "job", "--", "sh", "-c", lines[0].replace("distlock", DISTLOCK)).returncode == 0
    assert lab.run("--ttl", "20", "job", "--", "sh", "-c", lines[0].replace("distlock", DISTLOCK)).returncode == 76
    backup = lab.folder / "backup"
    backup.mkdir()
    for line in (lines[1], lines[2], lines[4], lines[5]):
        assert line.startswith("distlock fence /srv/backup ")
        own = line.replace("rsync -a /data/ /srv/backup/", "touch /srv/backup/done").replace("/srv/backup", str(backup))
        (backup / "done").unlink(missing_ok=True)
        assert lab.run("job", "--", "sh", "-c", own.replace("distlock", DISTLOCK)).returncode == 0
        assert (backup / "done").exists() == ("touch" in own)
    assert (backup / ".fence").exists()
    assert lines[3].startswith("distlock fence billing --store etcd://")
    assert lines[6] == "distlock drill"
