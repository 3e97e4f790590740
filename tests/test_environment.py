"""The child's environment: what distlock was started with, byte for byte, and what is promised on top."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock import environment
from distlock.environment import add_grant, inherited, of_child, outer_owners

PRINT_IT = "import sys\nfrom distlock.environment import inherited\nsys.stdout.write(repr(inherited()))"


def seen_by_a_program_started_with(variables: dict[bytes, bytes]) -> str:
    command = [sys.executable, "-c", f"import sys\nsys.path[:] = {sys.path}\n{PRINT_IT}"]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {b"LC_ALL": b"C"},
        {b"LANG": b"C", b"PATH": b"/bin"},
        {b"EMPTY": b"", b"EQUALS": b"a=b", b"TWO": b"a\nb", b"BYTES": b"\xff\xc3", b"not-a-shell-name.": b"x"},
    ],
)
def test_it_is_the_callers_byte_for_byte_in_any_locale(variables: dict[bytes, bytes]) -> None:
    assert seen_by_a_program_started_with(variables) == repr(variables)


def test_changes_of_this_process_are_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTLOCK_TEST_LATER", "1")
    assert b"DISTLOCK_TEST_LATER" not in inherited()


def test_of_a_name_given_twice_the_first_counts_and_what_is_no_variable_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = b"A=1\0B=2\0A=3\0nothing\0=x\0C=\0"
    monkeypatch.setattr(environment, "open", lambda *_: io.BytesIO(raw), raising=False)
    assert inherited() == {b"A": b"1", b"B": b"2", b"C": b""}


@pytest.mark.parametrize(
    ("run", "owners"),
    [(None, ()), (b"", ()), (b"a", ("a",)), (b"a:b:c", ("a", "b", "c")), (b":a::b:", ("a", "b"))],
)
def test_owners_of_the_runs_around_this_one(run: bytes | None, owners: tuple[str, ...]) -> None:
    assert outer_owners({} if run is None else {b"DISTLOCK_RUN": run}) == owners


def test_an_owner_that_is_no_text_is_no_error() -> None:
    assert len(outer_owners({b"DISTLOCK_RUN": b"\xff:a"})) == 2


def complete(
    caller: dict[bytes, bytes],
    *,
    name: str,
    owner: str,
    token: int | None,
    ttl: float,
    lease_file: str,
    holder_index: int | None = None,
) -> dict[bytes, bytes]:
    made = of_child(caller, name=name, owner=owner)
    add_grant(made, token, ttl, lease_file, holder_index)
    return made


def test_what_a_child_is_told() -> None:
    caller = {b"PATH": b"/bin", b"DISTLOCK_RUN": b"outer", b"DISTLOCK_BACKEND": b"redis://cache"}
    assert complete(caller, name="nächtlich", owner="me", token=7, ttl=30.0, lease_file="/state/me.json") == {
        **caller,
        b"DISTLOCK_NAME": "nächtlich".encode(),
        b"DISTLOCK_OWNER": b"me",
        b"DISTLOCK_TTL": b"30",
        b"DISTLOCK_RUN": b"outer:me",
        b"DISTLOCK_FENCING_TOKEN": b"7",
        b"DISTLOCK_LEASE": b"/state/me.json",
    }
    assert caller[b"DISTLOCK_RUN"] == b"outer", "the caller's own is not changed"


@pytest.mark.parametrize(
    ("ttl", "shown"),
    [
        (3.0, b"3"),
        (4.5, b"4.5"),
        (3.001, b"3.001"),
        (86400.0, b"86400"),
        (1036800.5, b"1036800.5"),
        (3.1536e8, b"315360000"),
    ],
)
def test_a_ttl_is_a_decimal_number_a_shell_can_use(ttl: float, shown: bytes) -> None:
    assert complete({}, name="n", owner="o", token=None, ttl=ttl, lease_file="")[b"DISTLOCK_TTL"] == shown


@pytest.mark.parametrize("token", [0, 2**63 - 1])
def test_every_token_is_told_exactly(token: int) -> None:
    made = complete({}, name="n", owner="o", token=token, ttl=30.0, lease_file="")
    assert made[b"DISTLOCK_FENCING_TOKEN"] == str(token).encode()


def test_nothing_of_an_outer_run_is_taken_for_this_ones() -> None:
    """Without a token, a lease file or an index of its own, the child must not find the outer run's."""
    words = ("FENCING_TOKEN", "NAME", "OWNER", "TTL", "LEASE", "HOLDER_INDEX", "PASSWORD")
    outer = {f"DISTLOCK_{word}".encode(): b"outer" for word in words}
    made = complete(outer, name="n", owner="o", token=None, ttl=30.0, lease_file="")
    assert sorted(made) == [b"DISTLOCK_NAME", b"DISTLOCK_OWNER", b"DISTLOCK_RUN", b"DISTLOCK_TTL"]
    assert b"outer" not in made.values()


names = st.binary(min_size=1, max_size=8).filter(lambda name: not set(name) & {0, ord("=")})


@given(st.dictionaries(names, st.binary(max_size=8).filter(lambda value: b"\0" not in value)))
def test_all_else_reaches_the_child_unchanged(caller: dict[bytes, bytes]) -> None:
    made = complete(caller, name="n", owner="o", token=1, ttl=30.0, lease_file="/l")
    assert {key: value for key, value in made.items() if not key.startswith(b"DISTLOCK_")} == caller


def test_a_lease_file_in_a_folder_that_is_no_text() -> None:
    path = os.fsdecode(b"/state/\xff/me.json")
    made = complete({}, name="n", owner="o", token=1, ttl=30.0, lease_file=path)
    assert made[b"DISTLOCK_LEASE"] == b"/state/\xff/me.json"
