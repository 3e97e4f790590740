"""URLs of PostgreSQL: libpq reads them, and nothing secret of them is shown, whatever slip there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq

from distlock.backend_url import masked
from distlock.backends.base import ConfigurationError
from distlock.backends.postgres_errors import of_login
from distlock.backends.postgres_url import Server, conninfo, parse

SECRET = "hunter2"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+advisory"])
@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("//", {}),
        ("///app", {"dbname": "app"}),
        ("//h", {"host": "h"}),
        ("//u@h:1/app", {"user": "u", "host": "h", "port": "1", "dbname": "app"}),
        ("//u:p%40%2F@h", {"user": "u", "password": "p@/", "host": "h"}),
        ("//h1:1,h2:2/app", {"host": "h1,h2", "port": "1,2", "dbname": "app"}),
        ("//[::1]:5/app", {"host": "::1", "port": "5", "dbname": "app"}),
        ("///app?host=/run/postgresql&user=u", {"host": "/run/postgresql", "user": "u", "dbname": "app"}),
        ("///?service=prod", {"service": "prod"}),
        ("//h/app?sslmode=verify-full&application_name=mine", {"sslmode": "verify-full", "application_name": "mine"}),
        ("//h/app?sslrootcert=/ca.pem", {"sslrootcert": "/ca.pem", "sslmode": "verify-full"}),
        ("//h/app?sslrootcert=/ca.pem&sslmode=require", {"sslmode": "require"}),
        ("//h/app?client_encoding=LATIN1", {"client_encoding": "UTF8"}),
        ("//h/app?keepalives_idle=60", {"keepalives_idle": "60"}),
        ("//h/app?target_session_attrs=primary", {"target_session_attrs": "primary"}),
    ],
)
def test_what_a_url_means(scheme: str, rest: str, expected: dict[str, str]) -> None:
    parameters = parse(f"{scheme}:{rest}").parameters
    assert {name: parameters.get(name) for name in expected} == expected
    assert parameters["tcp_user_timeout"] == "10000"
    assert parameters.get("application_name") in ("distlock", "mine")


@pytest.mark.parametrize(
    "rest",
    [
        f"u:{SECRET}@h",
        f"//u:{SECRET}@x@h/app",
        f"//u:{SECRET}/x@h/app",
        f"//u:{SECRET}?x@h/app",
        f"//u:{SECRET}?x=1@h/app",
        f"//u:{SECRET}#x@h/app",
        f"//u:{SECRET}%x@h/app",
        f"//u:{SECRET}%00@h/app",
        f"//u:{SECRET}%0A@h/app",
        f"//u:{SECRET}@h/app?x={SECRET}",
        f"//u:{SECRET}@h/app?password",
        f"//u:{SECRET}@[::1/app",
        f"//u:{SECRET}@h/app?target_session_attrs=read-only",
        f"//u:{SECRET}@h/app?target_session_attrs=prefer-standby",
        f"//u:{SECRET}@h/app?replication=database",
    ],
)
def test_a_slip_shows_no_secret(rest: str) -> None:
    for scheme in ("postgresql", "postgresql+advisory"):
        with pytest.raises(ConfigurationError) as caught:
            parse(f"{scheme}:{rest}")
        assert SECRET not in str(caught.value)
        assert str(caught.value).startswith(f"backend URL {scheme}://***: ")


def test_a_server_shows_no_secret() -> None:
    assert SECRET not in repr(parse(f"postgresql://u:{SECRET}@h"))
    for scheme in ("postgresql", "postgres", "postgresql+advisory"):
        shown = masked(f"{scheme}://u:{SECRET}@h1:1,h2:2/app?password={SECRET}")
        assert shown == f"{scheme}://u:***@h1:1,h2:2/app?***"


def test_a_password_from_elsewhere_is_for_a_url_without_one() -> None:
    assert parse("postgresql://u@h").with_password("x").parameters["password"] == "x"
    assert parse("postgresql://u:y@h").with_password("x").parameters["password"] == "y"
    assert "password" not in parse("postgresql://u@h").with_password(None).parameters


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1))
def test_libpq_reads_back_what_is_written(value: str) -> None:

    read = pq.Conninfo.parse(conninfo({"host": "h", "password": value}))
    assert {o.keyword.decode(): o.val.decode() for o in read if o.val} == {"host": "h", "password": value}
    assert Server({"password": value}).with_password("other").parameters == {"password": value}


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ('FATAL:  password authentication failed for user "u"', "Refused", "refuses the user or password"),
        ("fe_sendauth: no password supplied", "Refused", "wants a password"),
        ('FATAL:  no pg_hba.conf entry for host "::1"', "Refused", "has no entry in pg_hba.conf"),
        ('FATAL:  database "none" does not exist', "ConfigurationError", "does not have the database"),
        ("FATAL:  the database system is starting up", "Unavailable", "is starting up or shutting down"),
        ("FATAL:  sorry, too many clients already", "Unavailable", "has no connection left"),
        ("FATAL:  unsupported startup parameter: options", "ConfigurationError", "behind a pooler"),
        ("server does not support SSL, but SSL was required", "ConfigurationError", "does not speak TLS"),
        ("session is read-only", "Unavailable", "is read-only"),
        ("could not connect to server: No route to host", "Unavailable", "No route to host"),
        ("", "Unavailable", "no reason given"),
    ],
)
def test_what_a_login_that_failed_is(said: str, code: str, words: str) -> None:
    error = of_login(said, "h:5432", needs_password=False)
    assert (type(error).__name__, str(error).startswith("h:5432 ")) == (code, True)
    assert words in str(error)
