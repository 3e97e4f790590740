"""What ``import distlock`` costs a program, and what it can be asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import distlock

HEAVY = {"typer", "rich", "redis", "etcd3", "grpc", "psycopg", "kazoo", "platformdirs", "prometheus_client", "sqlite3"}


def modules(code: str) -> set[str]:
    """What a fresh interpreter has loaded beyond what it had."""
    script = f"import sys; before = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"
    return set(
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    )


def test_import_loads_nothing() -> None:
    assert modules("import distlock; distlock.__version__") == {"distlock"}


def test_an_error_class_loads_no_more_than_the_contract() -> None:
    loaded = modules("import distlock; distlock.Busy")
    assert {name for name in loaded if name.startswith("distlock")} == {
        "distlock",
        "distlock.backends",
        "distlock.backends.base",
        "distlock.backends.probe",
    }


def test_holding_loads_no_client_library_in_the_host(tmp_path: object) -> None:
    """Nor anything of the command line."""
    loaded = modules(f"import distlock\nwith distlock.hold('job', backend='local://{tmp_path}/locks'): pass")
    assert not loaded & (HEAVY - {"platformdirs"})  # where the configuration is
    assert not {name for name in loaded if name.startswith("distlock.cli")}


def test_every_name_is_there() -> None:
    names = {name for name in dir(distlock) if name[0] != "_"}
    errors = {"Busy", "ConfigurationError", "LeaseExpiring", "LeaseLost", "Refused", "Unavailable", "UsageError"}
    assert {"hold", "Hold", "Lease", "Lost", "DistlockError", "InternalError", *errors} <= names
    for name in errors:
        assert issubclass(getattr(distlock, name), distlock.DistlockError)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="'distlock' has no attribute 'lock'"):
        getattr(distlock, "lock")  # noqa: B009 - type checkers know better
    with pytest.raises(ImportError, match="cannot import name"):
        exec("from distlock import lock")
