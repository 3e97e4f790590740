"""What a PostgreSQL tells of what breaks locks, each on a server that has it."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from contenders import take
from distlock.backends.probe import Probe
from postgres_fixtures import opened
from postgres_servers import PostgresServer, pgbouncer, postgres, standby
from processes import wait_until

SOUND = {"fsync": "on"}


def _probe(url: str) -> Probe:
    with opened(url) as backend:
        return backend.probe(5.0)


def _evidence(url: str) -> list[str]:
    return [finding.evidence for finding in _probe(url).findings]


def test_a_sound_server() -> None:
    with postgres(SOUND) as server:
        for url in server.url, server.advisory_url:
            found = _probe(url)
            assert found.findings == ()
            assert found.server.startswith("PostgreSQL ")
            assert "primary" in found.server
            assert found.clock_offset is not None
            assert abs(found.clock_offset) < 1.0


@pytest.mark.parametrize(
    ("options", "evidence"),
    [
        ({"fsync": "off"}, "fsync = off"),
        ({**SOUND, "full_page_writes": "off"}, "full_page_writes = off"),
        ({**SOUND, "synchronous_commit": "off"}, "synchronous_commit = off"),
        ({**SOUND, "max_connections": "10"}, "1 of 7 connections are used"),
        ({**SOUND, "idle_session_timeout": "5s"}, "idle_session_timeout = 5000 ms"),
        ({**SOUND, "default_transaction_read_only": "on"}, "transaction_read_only"),
    ],
)
def test_settings(options: dict[str, str], evidence: str) -> None:
    with postgres(options) as server:
        for url in server.url, server.advisory_url:
            (found,) = _evidence(url)
            assert evidence in found


def test_connections_that_others_use() -> None:
    with postgres({**SOUND, "max_connections": "20"}) as server, ExitStack() as stack:
        assert _evidence(server.url) == []
        for _ in range(9):
            stack.enter_context(server.connect())
        (found,) = _evidence(server.url)
        assert found.startswith("10 of 17 connections")


def test_standbys() -> None:
    """And of a role that may not look, what it cannot see."""
    with postgres(SOUND) as server, standby(server) as second:
        server.role("job")
        assert _evidence(server.url) == ["pg_stat_replication: sync_state of standby"]
        assert _evidence(second.url) == ["fsync = off", "pg_is_in_recovery() or transaction_read_only"][::-1]
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
        server.sql("SELECT pg_reload_conf()")
        _wait_for_sync(server)
        assert _evidence(server.url) == []
        (found,) = _evidence(server.url_of("job"))
        assert found.startswith("pg_stat_replication: 1 rows without")


def _wait_for_sync(server: PostgresServer) -> None:
    wait_until(lambda: server.sql("SELECT sync_state FROM pg_stat_replication") == ["sync"])


def test_a_table_that_a_crash_empties() -> None:
    with postgres(SOUND) as server, opened(server.url) as backend:
        backend.release(take(backend, "job"), 5.0)
        server.sql("ALTER TABLE distlock_lock SET UNLOGGED")
        assert _evidence(server.url) == ["a table distlock_* is UNLOGGED"]


def test_a_pooler_in_between() -> None:
    with postgres(SOUND) as server, pgbouncer(server) as pooler:
        for scheme, meaning in ("postgresql", "not woken"), ("postgresql+advisory", r"refused (78)"):
            found = _probe(pooler.url(scheme))
            (pooled,) = found.findings
            assert pooled.evidence == "pg_backend_pid() is not the pid told at the login"
            assert meaning in pooled.meaning
            assert "through a pooler" in found.server
