"""SQL of advisory locks, and of the sessions that have them: parts of the statements of postgres_advisory.py."""

from __future__ import annotations

MAY_BE_ITS = "(a.backend_start IS NULL OR a.backend_start < expires_at - ttl * interval '1 second')"
"""Of a session ``a`` that has the pid on record: somebody else's began after the lease. When it began, another role may
not see."""
SOON = 0.02
"""Seconds in which a session that is shown out is gone."""
_MAY_HEAR = 1
"""Seconds in which a session may give up by itself what was released for it."""


def is_locked(key: str, which: str) -> str:
    """Whether a session has the advisory lock that is one of ``which``."""
    return f"""EXISTS (
        SELECT FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
            AND l.classid::bigint = (({key}) >> 32 & 4294967295) AND l.objid::bigint = (({key}) & 4294967295)
            AND {which}
    )"""


def taken(direct: str, key: str, holders: int) -> str:
    """CASE and not AND, of which no order is promised: nothing is taken in a session of a pooler's."""
    how = "pg_try_advisory_lock_shared" if holders > 1 else "pg_try_advisory_lock"
    return f"CASE WHEN {direct} THEN {how}({key}) ELSE false END"


def unlocked(key: str, *, shared: bool) -> str:
    return f"pg_advisory_unlock_shared({key})" if shared else f"pg_advisory_unlock({key})"


def evicted(key: str) -> str:
    """A session may outlive its lease: the process is frozen, or its host has vanished. A lease that ran out entitles
    to end it; of one that was released by somebody else its holder may hear by itself. Only a session of the same role
    can be ended, and none that has got its pid since."""
    return f"""(
        SELECT CASE WHEN pg_terminate_backend(a.pid) THEN {SOON} END
        FROM pg_stat_get_activity(backend) AS a
        WHERE backend IS NOT NULL AND a.usesysid = quote_ident(current_user)::regrole
            AND a.backend_start < renewed_at
            AND now > expires_at + CASE WHEN holder IS NULL THEN {_MAY_HEAR} ELSE 0 END * interval '1 second'
            AND {is_locked(key, "true")}
            AND NOT {is_locked(key, "l.pid <> a.pid")}
    )"""


def dead_ended(key: str) -> str:
    """The same for several holders: of the same role, and with nothing that lives."""
    return f"""(
        SELECT count(pg_terminate_backend(a.pid))
        FROM places AS p CROSS JOIN pg_stat_get_activity(p.backend) AS a
        WHERE NOT p.alive AND p.backend <> pg_backend_pid()
            AND a.usesysid = quote_ident(current_user)::regrole
            AND a.backend_start < p.expires_at - p.ttl * interval '1 second'
            AND NOT EXISTS (SELECT FROM places AS other WHERE other.alive AND other.backend = p.backend)
            AND {is_locked(key, "l.pid = a.pid")}
    )"""


def in_the_way(key: str) -> str:
    """What may be done with the holder's session."""
    return f"""(
        SELECT CASE
            WHEN a.pid = pg_backend_pid() THEN 'own'
            WHEN a.backend_start IS NOT NULL AND (
                me.rolsuper OR NOT its.rolsuper
                    AND (pg_has_role(a.usesysid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE'))
            ) THEN 'ended'
            ELSE 'refused'
        END
        FROM pg_stat_get_activity(backend) AS a
            JOIN pg_roles AS its ON its.oid = a.usesysid
            JOIN pg_roles AS me ON me.rolname = current_user
        WHERE backend IS NOT NULL AND {MAY_BE_ITS}
            AND {is_locked(key, "l.pid = a.pid")}
    )"""


def ended(key: str, *, shared: bool) -> str:
    """Does it."""
    return f"""CASE session
        WHEN 'own' THEN {unlocked(key, shared=shared)}
        WHEN 'ended' THEN pg_terminate_backend(backend)
    END"""
