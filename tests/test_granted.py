"""A TTL that the server changed: a note, or the lease is given back with what to do."""

from __future__ import annotations

import pytest

from distlock.backends.base import ConfigurationError
from distlock.granted import check_granted
from fakes import FakeClock, ScriptedBackend, a_grant


def checked(granted: float, asked: float, grace: float) -> str | None:
    """With an error the lease has been given back, and else not."""
    backend = ScriptedBackend(FakeClock())
    grant = a_grant(1000.0, granted)
    try:
        note = check_granted(backend, grant, asked, grace, 1.0)
    except ConfigurationError:
        assert backend.times(f"release {grant.token}")
        raise
    assert backend.log == []
    return note


def test_the_ttl_that_was_asked_for_is_no_news() -> None:
    assert checked(30.0, 30.0, 5.0) is None


@pytest.mark.parametrize(("granted", "asked"), [(40.0, 50.0), (4.0, 3.0)])
def test_another_one_is_told(granted: float, asked: float) -> None:
    assert checked(granted, asked, 1.0) == f"the backend grants a lease of {granted:g}s instead of {asked:g}s"


def test_a_grace_that_no_longer_fits_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"12s instead of 30s: .* grace of 5s; give --kill-after 4s or less"):
        checked(12.0, 30.0, 5.0)


def test_a_grace_that_just_fits_is_none() -> None:
    assert checked(12.0, 30.0, 4.0)


def test_a_lease_too_short_to_live_with_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match="below 3s"):
        checked(2.0, 30.0, 0.5)
