"""What killed renewers left in the state directory does not pile up."""

from __future__ import annotations

import json

from processes import Lab, wait_until


def test_a_run_removes_lease_files_that_are_long_over(lab: Lab) -> None:
    leases = lab.folder / "state" / "leases"
    assert lab.run("job", "--", "sh", "-c", "cp $DISTLOCK_LEASE copy").returncode == 0
    content = json.loads((lab.folder / "copy").read_text())
    recent, old = leases / "recent.json", leases / "old.json"
    recent.write_text(json.dumps(content))
    old.write_text(json.dumps(content | {"hard_deadline_boottime": content["hard_deadline_boottime"] - 2 * 86400}))
    run = lab.start("job", "--", "sleep", "2")
    wait_until(lambda: not old.exists())
    assert recent.exists()
    run.wait(10)
