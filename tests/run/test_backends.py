"""``distlock backends``: what the engines say of themselves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from distlock.backends import SCHEMES, engine_of
from processes import DISTLOCK


def backends(*options: str, path: Path | None = None) -> str:
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"} | ({"PYTHONPATH": str(path)} if path else {})
    command = [DISTLOCK, "backends", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=30)
    assert done.stderr == ""
    return done.stdout


def test_json_has_every_scheme_and_what_its_engine_declares() -> None:
    told = json.loads(backends("--json"))
    assert told["version"] == 1
    assert [row["scheme"] for row in told["backends"]] == list(SCHEMES)
    for row in told["backends"]:
        engine = engine_of(row.pop("scheme"))
        assert row == {
            "class": engine.safety,
            "exclusive_until": engine.exclusive_until,
            "token_scope": engine.token_scope,
            "fifo": engine.fifo,
            "problem": None,
        }


def test_a_line_a_scheme() -> None:
    head, *lines = backends().splitlines()
    assert head.split()[:3] == ["URL", "CLASS", "ORDER"]
    assert [line.split()[:2] for line in lines] == [[f"{name}:", engine_of(name).safety] for name in SCHEMES]


def test_an_engine_that_does_not_import_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "kazoo").mkdir()
    (tmp_path / "kazoo" / "__init__.py").write_text("raise ImportError('half of it is missing')\n")
    rows = {row["scheme"]: row for row in json.loads(backends("--json", path=tmp_path))["backends"]}
    assert "half of it is missing" in rows["zookeeper"]["problem"]
    assert rows["zookeeper"]["class"] is None
    assert rows["local"]["class"] == "correctness"
    assert "half of it is missing" in backends(path=tmp_path)
