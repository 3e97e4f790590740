"""Marks, kept locks and fence registers in tables: what a crash leaves of them, what is dropped, what rights do."""

from __future__ import annotations

import os

import pytest

import postgres_fixtures
from contenders import take, try_once
from distlock.backends.base import SUCCESS, LeaseLost, Mark, Refused, Revoked, Unavailable, Unmarked
from postgres_fixtures import left_behind, opened
from postgres_servers import PostgresServer, postgres
from processes import wait_until

DAY = 86400.0
DONE = Mark(SUCCESS, 1.0, 400 * DAY)
TODAY = Mark("2026-11-30", 1.0, DAY)


one_server = postgres_fixtures.one_server_with_a_role
server = postgres_fixtures.emptied_server


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory"])
def test_a_mark_that_cannot_be_written_does_not_keep_the_lock(server: PostgresServer, scheme: str) -> None:
    """No right on the table, or no table: the lock goes to the next, its last success is known, somebody is told."""
    rest = server.url.partition(":")[2]
    with opened(f"{scheme}:{rest}") as admin, opened(server.url_of("job", scheme=scheme)) as backend:
        admin.prepare(5.0)
        server.sql("GRANT ALL ON distlock_layout, distlock_lock, distlock_waiter TO job")
        for expected, end in (("permission denied", "DROP TABLE distlock_mark"), ("does not exist", "SELECT 1")):
            name = f"job, {expected}"
            grant = take(backend, name)
            with pytest.raises((Refused, Unavailable), match=expected):
                backend.mark(grant, TODAY, 5.0)
            backend.renew(grant, 5.0)
            with pytest.raises(Unmarked, match=expected):
                backend.release(grant, 5.0, (DONE, TODAY))
            again = take(admin, name)
            assert admin.inspect(name, 5.0).last_success
            admin.release(again, 5.0)
            server.sql(end)
            backend.release(take(backend, name), 5.0, (DONE,))  # needs no right on that table
    wait_until(lambda: left_behind(server)["advisory"] == [])


def test_marks_that_are_over_are_dropped_with_the_next_one(server: PostgresServer) -> None:
    """Those of locks that nobody takes any more too; of many at once the oldest."""
    with opened(server.url) as backend:
        for number in range(3):
            backend.release(take(backend, f"job {number}"), 5.0, (TODAY, Mark("short", 0.0, 0.001), DONE))
        server.sql(
            "INSERT INTO distlock_mark SELECT 'gone', int4send(n), now(), now() - interval '1 day'"
            " FROM generate_series(1, 150) AS n"
        )
        backend.release(take(backend, "job 0"), 5.0, (DONE,))
        assert server.sql("SELECT count(*) FROM distlock_mark WHERE name = 'gone'") == [150]
        for left in (50, 0):
            backend.release(take(backend, "job 0"), 5.0, (Mark("short", 0.0, 0.001),))
            assert server.sql("SELECT count(*) FROM distlock_mark WHERE name = 'gone'") == [left]
        backend.release(take(backend, "job 0"), 5.0, (TODAY,))
        assert server.sql("SELECT count(*) FROM distlock_mark") == [3]
        assert all(backend.marked(f"job {number}", TODAY.slot, 5.0) for number in range(3))


def test_a_slot_named_twice_has_the_later_mark(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        backend.release(take(backend, "job"), 5.0, (Mark("x", 500.0, DAY), Mark("x", 7.0, DAY)))
        found = backend.marked("job", "x", 5.0)
        assert found
        assert found.age < 100.0


def test_a_success_of_long_ago_is_forgotten(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        backend.release(take(backend, "job"), 5.0, (DONE,))
        assert backend.marked("job", SUCCESS, 5.0)
        server.sql("UPDATE distlock_lock SET succeeded_at = now() - interval '401 days'")
        assert backend.marked("job", SUCCESS, 5.0) is None


def test_a_lease_that_ran_out_marks_nothing(server: PostgresServer) -> None:
    """Though nobody else has had the lock since."""
    with opened(server.url) as backend:
        grant = take(backend, "job")
        server.sql("UPDATE distlock_lock SET expires_at = now()")
        with pytest.raises(LeaseLost):
            backend.mark(grant, DONE, 5.0)
        backend.release(grant, 5.0, (DONE, TODAY), 60.0)
        assert backend.inspect("job", 5.0)._replace(token=None) == backend.inspect("never seen", 5.0)._replace(
            name="job"
        )
        assert backend.marked("job", TODAY.slot, 5.0) is None
        assert try_once(backend, "job")


def test_what_was_told_outlives_a_crash() -> None:
    """Though the database does not wait for the disk by itself: a mark, a lock that is kept, a lease that was taken
    away, a fence."""
    options = {"fsync": "on", "synchronous_commit": "off", "wal_writer_delay": "10s"}
    with postgres(options) as server, opened(server.url) as backend:

        def crash() -> None:
            server.crash()
            server.start()

        backend.release(take(backend, "marked"), 5.0, (TODAY,))
        crash()
        assert backend.marked("marked", TODAY.slot, 5.0)
        marked = take(backend, "marked first")
        backend.mark(marked, TODAY, 5.0)
        crash()
        assert backend.marked("marked first", TODAY.slot, 5.0)
        backend.release(take(backend, "kept", ttl=3.0), 5.0, (), 600.0)
        crash()
        assert (backend.inspect("kept", 5.0).expires_in or 0) > 500
        revoked = take(backend, "revoked", ttl=600.0)
        assert backend.revoke("revoked", revoked.token, None, "alice", 5.0, now=False)
        crash()
        with pytest.raises(Revoked):
            backend.renew(revoked, 5.0)
        assert backend.advance_fence("disk", 0, 5, 5.0) == 5
        crash()
        assert backend.advance_fence("disk", 0, 1, 5.0) == 5
        backend.reset_fence("disk", 0, 5.0)
        crash()
        assert backend.advance_fence("disk", 0, 1, 5.0) == 1


def test_who_revoked_may_have_any_name(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        for by in ("é@хост", "o'brien\\x@ops", "x" * 500):
            grant = take(backend, "job")
            assert backend.revoke("job", grant.token, None, by, 5.0, now=False)
            assert backend.inspect("job", 5.0).revoked_by == by
            with pytest.raises(Revoked) as caught:
                backend.renew(grant, 5.0)
            assert str(caught.value) == f"an operator released it: {by}"
            backend.release(grant, 5.0)


def test_an_answer_that_was_lost_hides_no_operator(server: PostgresServer) -> None:
    """A try of which the answer was lost is repeated; the lease that it had was taken away meanwhile."""
    owner = os.urandom(16).hex()
    with opened(server.url) as backend, opened(server.url) as other:
        first = take(backend, "job", owner=owner)
        assert other.revoke("job", first.token, None, "alice", 5.0, now=False)
        second = take(backend, "job", owner=owner)
        assert second.token == first.token
        with pytest.raises(Revoked, match="alice"):
            backend.renew(second, 5.0)


def test_an_unknown_layout_takes_no_mark_and_no_token(server: PostgresServer) -> None:
    with opened(server.url) as backend:
        grant = take(backend, "job")
        server.sql("UPDATE distlock_layout SET version = 2")
        for step in (
            lambda: backend.mark(grant, TODAY, 5.0),
            lambda: backend.release(grant, 5.0, (TODAY,)),
            lambda: backend.marked("job", TODAY.slot, 5.0),
            lambda: backend.revoke("job", grant.token, None, "alice", 5.0, now=True),
            lambda: backend.advance_fence("disk", 0, 5, 5.0),
            lambda: backend.reset_fence("disk", 0, 5.0),
        ):
            with pytest.raises(Unavailable, match="version 2 of a layout") as caught:
                step()
            assert caught.value.permanent
        assert server.sql("SELECT count(*) FROM distlock_mark") == server.sql("SELECT count(*) FROM distlock_fence")
        assert server.sql("SELECT owner FROM distlock_lock") == [grant.owner]


def test_a_resource_needs_rights_on_its_register_only(server: PostgresServer) -> None:
    """As documented."""
    with opened(server.url) as admin, opened(server.url_of("job")) as backend:
        admin.prepare(5.0)
        server.sql("GRANT SELECT ON distlock_layout TO job; GRANT SELECT, INSERT, UPDATE ON distlock_fence TO job")
        assert backend.advance_fence("disk", 0, 5, 5.0) == 5
        assert backend.advance_fence("disk", 0, 4, 5.0) == 5
        with pytest.raises(Refused, match="permission denied"):
            backend.reset_fence("disk", 0, 5.0)
        server.sql("GRANT DELETE ON distlock_fence TO job")
        backend.reset_fence("disk", 0, 5.0)
        assert backend.advance_fence("disk", 0, 4, 5.0) == 4
