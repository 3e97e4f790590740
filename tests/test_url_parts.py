"""Slips in the URL of any server: whichever part they make the password look like, it is not shown."""

from __future__ import annotations

import pytest

from contenders import environment
from distlock.backends import SCHEMES, open_backend
from distlock.backends.base import ConfigurationError

SECRET = "hunter2"


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "local"])
@pytest.mark.parametrize("rest", [":job:{}@h", ":job:{}@h://i", ":/job:{}@h://i", "://job:{}/@h", "://job:{}?@h://"])
def test_a_slip_shows_no_secret(scheme: str, rest: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_backend(scheme + rest.format(SECRET), environment())
    assert str(caught.value).startswith(f"backend URL {scheme}://***: ")
    assert SECRET not in str(caught.value)
