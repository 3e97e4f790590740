"""Where state is kept: for root and others, with and without a home."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from distlock.backends.base import ConfigurationError
from distlock.state import state_directory


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISTLOCK_STATE_DIR", "XDG_STATE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who is not root, and whose home by the password database is /users/of-passwd."""
    entry = pwd.struct_passwd(("job", "x", 1234, 1234, "", "/users/of-passwd", "/bin/sh"))
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)


@pytest.mark.parametrize("uid", [0, 1234])
def test_the_one_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    monkeypatch.setenv("DISTLOCK_STATE_DIR", "/srv/state")
    assert state_directory() == Path("/srv/state")


@pytest.mark.parametrize("chosen", ["state", "./state", "~/state"])
def test_a_relative_one_would_move_with_the_working_directory(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("DISTLOCK_STATE_DIR", chosen)
    with pytest.raises(ConfigurationError, match=r"DISTLOCK_STATE_DIR: .* is not an absolute path") as caught:
        state_directory()
    assert f"'{chosen}'" in str(caught.value)


@pytest.mark.parametrize("home", ["/root", "/users/of-sudo-user", "", None])
def test_root_has_one_for_the_host_wherever_its_home_is(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    """A cron job of root and a shell of sudo must mean the same locks."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("DISTLOCK_STATE_DIR", "")
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    assert state_directory() == Path("/var/lib/distlock")


@pytest.mark.usefixtures("user")
def test_a_user_has_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/job")
    assert state_directory() == Path("/users/job/.local/state/distlock")
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert state_directory() == Path("/xdg/distlock")


@pytest.mark.usefixtures("user")
@pytest.mark.parametrize("home", ["", None])
def test_without_a_home_in_the_environment_it_is_that_of_the_password_database(
    monkeypatch: pytest.MonkeyPatch, home: str | None
) -> None:
    if home is not None:
        monkeypatch.setenv("HOME", home)
    assert state_directory() == Path("/users/of-passwd/.local/state/distlock")
    assert os.environ.get("HOME") == home, "which may be that of a program that holds a lock"


@pytest.mark.usefixtures("user")
def test_a_uid_that_nobody_knows_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(ConfigurationError, match=r"user 1234 has no home directory; set HOME, XDG_STATE_HOME or DIST"):
        state_directory()
    monkeypatch.setenv("XDG_STATE_HOME", "/xdg")
    assert state_directory() == Path("/xdg/distlock")
