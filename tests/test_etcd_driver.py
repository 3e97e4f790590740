"""How etcd3 is imported: where protobuf works otherwise, leaving nothing behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

VARIABLES = ("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "GRPC_VERBOSITY")


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("given", [None, "mine"])
def test_the_environment_is_as_it_was(given: str | None) -> None:
    environment = {} if given is None else {VARIABLES[1]: "error"}
    looking = f"import os; print([os.environ.get(name) for name in {VARIABLES}])"
    before = python(looking, **environment)
    after = python(f"import distlock.backends.etcd\n{looking}", **environment)
    assert (after.stdout, after.stderr, after.returncode) == (before.stdout, "", 0)


def test_a_child_of_the_process_does_not_get_it() -> None:
    script = "import distlock.backends.etcd, subprocess; subprocess.run(['env'])"
    done = python(script)
    assert done.returncode == 0
    assert not any(name in done.stdout for name in VARIABLES)


def test_etcd3_itself_can_be_imported_later() -> None:
    script = "import warnings; warnings.simplefilter('ignore'); import distlock.backends.etcd, sys"
    done = python(
        f"{script}; assert 'etcd3' not in sys.modules; import etcd3; print(etcd3.client, etcd3.etcdrpc.KVStub)"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_protobuf_that_was_loaded_otherwise_is_a_clear_error() -> None:
    script = (
        "import google.protobuf.descriptor_pool, sys\n"
        "from distlock.backends import open_backend\n"
        "from distlock.backends.base import Unavailable\n"
        "try: open_backend('etcd://h', None)\n"
        "except Unavailable as error: print(error.permanent, error)\n"
    )
    done = python(script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("True the client library for etcd: does not import: this process had loaded protobuf")


def test_a_bad_start_says_nothing_of_its_own() -> None:
    """gRPC logs what goes wrong to stderr, where our own line is."""
    script = (
        "from distlock.backends import open_backend\n"
        "from distlock.backends.base import Environment, Unavailable\n"
        "from distlock.clock import boottime\n"
        "backend = open_backend('etcds://127.0.0.1:1', Environment(boottime, None))\n"
        "try: backend.inspect('n', 1.0)\n"
        "except Unavailable as error: print(error)\n"
    )
    done = python(script)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "127.0.0.1:1 is not reached: Connection refused\n"
