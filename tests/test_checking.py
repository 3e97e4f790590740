"""Asking one's own lease: what is good, and that whatever cannot be shown is not."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distlock import checking
from distlock.backends.base import Grant, LeaseLost
from distlock.checking import OwnLease, check_time_left, own_lease
from distlock.clock import boot_id
from distlock.leasefile import LeaseFile

LEASE = OwnLease("nightly", "me", 7, "redis://cache", soft=1023.2, hard=1028.2)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    file = LeaseFile(tmp_path / "state", "me", "redis://cache")
    file.write(Grant("nightly", "me", 7, 30.0, 1000.0), 1023.2, 1028.2)
    return {"DISTLOCK_OWNER": "me", "DISTLOCK_LEASE": str(file.path)}


def lost(environment: dict[str, str]) -> str:
    with pytest.raises(LeaseLost) as caught:
        own_lease(environment)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_lease_is_what_its_file_says(environment: dict[str, str]) -> None:
    assert own_lease(environment) == LEASE


@pytest.mark.parametrize("token", [None, 0, 2**63 - 1])
def test_any_token(environment: dict[str, str], token: int | None) -> None:
    change(environment, token=token)
    assert own_lease(environment).token == token


def test_the_index_of_a_holder(environment: dict[str, str]) -> None:
    change(environment, holder_index=2)
    assert own_lease(environment).holder_index == 2
    path = Path(environment["DISTLOCK_LEASE"])
    content = json.loads(path.read_text())
    del content["holder_index"]
    path.write_text(json.dumps(content))
    assert own_lease(environment).holder_index == 0, "of a release that knew of none"
    for nonsense in (None, "2", 2.0, [2]):
        change(environment, holder_index=nonsense)
        assert "no lease file" in lost(environment)


def change(environment: dict[str, str], **changes: object) -> None:
    path = Path(environment["DISTLOCK_LEASE"])
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_outside_of_a_run(environment: dict[str, str]) -> None:
    assert "not inside of a distlock run" in lost({})
    assert "not inside of a distlock run" in lost({**environment, "DISTLOCK_OWNER": ""})
    assert "could not write" in lost({"DISTLOCK_OWNER": "me"})


def test_a_file_that_is_gone(environment: dict[str, str]) -> None:
    Path(environment["DISTLOCK_LEASE"]).unlink()
    assert "gone" in lost(environment)


def test_a_file_that_cannot_be_read(environment: dict[str, str], tmp_path: Path) -> None:
    assert "directory" in lost({**environment, "DISTLOCK_LEASE": str(tmp_path)})


def test_anothers_file(environment: dict[str, str]) -> None:
    assert "another run's ('me')" in lost({**environment, "DISTLOCK_OWNER": "you"})


def test_a_file_from_before_a_reboot(environment: dict[str, str]) -> None:
    change(environment, boot_id="another")
    assert "reboot" in lost(environment)


def test_a_file_written_in_another_time_namespace(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "boottime_offset", lambda: 500.0)
    assert own_lease(environment).hard == pytest.approx(1528.2)
    change(environment, boottime_offset_seconds=-250.5)
    assert own_lease(environment).soft == pytest.approx(1023.2 + 750.5)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
KEYS = ["version", "name", "owner", "token", "backend", "soft_deadline_boottime", "hard_deadline_boottime", "boot_id"]


@given(st.binary(max_size=60) | anything.map(lambda value: json.dumps(value).encode()))
def test_garbage_is_no_lease(content: bytes) -> None:
    refuses(content)


@given(st.sampled_from(KEYS), anything)
def test_a_file_with_one_wrong_value_is_a_lease_or_none_and_never_an_accident(key: str, value: Any) -> None:
    good = {
        "version": 1,
        "name": "nightly",
        "owner": "me",
        "token": 7,
        "backend": "local:",
        "ttl_seconds": 30.0,
        "soft_deadline_boottime": 1.0,
        "hard_deadline_boottime": 2.0,
        "boottime_offset_seconds": 0.0,
        "boot_id": boot_id(),
    }
    refuses(json.dumps({**good, key: value}).encode())
    refuses(json.dumps({name: given for name, given in good.items() if name != key}).encode())


def refuses(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            lease = own_lease({"DISTLOCK_OWNER": "me", "DISTLOCK_LEASE": file.name})
            check_time_left(lease, None, 1e12)
        except LeaseLost:
            return
        raise AssertionError(f"a lease in {content!r}")


def left(need: float | None, now: float) -> str:
    with pytest.raises(LeaseLost) as caught:
        check_time_left(LEASE, need, now)
    return str(caught.value)


def test_time_left() -> None:
    check_time_left(LEASE, None, 1023.1)
    check_time_left(LEASE, 0.0, 1028.1)
    check_time_left(LEASE, 28.0, 1000.1)
    assert left(None, 1023.2) == "'nightly': the lease is about to end, in 5s"
    assert left(28.5, 1000.2) == "'nightly': 28s of the lease are left, 28.5s are needed"
    for need in (None, 0.0, 10.0):
        assert left(need, 1028.2) == "'nightly': the lease was over 0s ago"
        assert left(need, 1088.2) == "'nightly': the lease was over 1m ago"


@given(st.floats(0, 100), st.floats(900, 1100))
def test_never_good_with_less_than_needed(need: float, now: float) -> None:
    try:
        check_time_left(LEASE, need, now)
    except LeaseLost:
        assert now + need > 1028.2 - 1e-6
    else:
        assert now < 1028.2
        assert now + need <= 1028.2 + 1e-6
