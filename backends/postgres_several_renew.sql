-- Starts the TTL of one of several holders anew if it still is one and nobody has taken its lease away.
--
-- in     places: postgres_several.sql
--        group: the lock's owner while it is held by so many; the others as postgres_renew.sql
-- gives  a row of postgres_renew.sql

{places}
seen AS MATERIALIZED (
    SELECT now, version, (SELECT record.owner FROM record) AS holder, mine.*, {elsewhere} AS elsewhere
    FROM instant LEFT JOIN (
        SELECT index, owner, ttl, expires_at, backend, kept, revoked_by, alive FROM places
        WHERE owner = {owner} ORDER BY alive DESC, kept LIMIT 1
    ) AS mine ON true
),
outcome AS MATERIALIZED (
    SELECT
        *,
        CASE
            WHEN version IS DISTINCT FROM {layout} THEN 'layout'
            WHEN holder <> {group} THEN 'taken'
            WHEN holder IS NULL OR alive IS NOT TRUE THEN 'gone'
            WHEN kept THEN 'kept'
            WHEN revoked_by IS NOT NULL THEN 'revoked'
            WHEN elsewhere THEN 'renewed'
            WHEN {gate} THEN 'renewed'
            ELSE 'foreign'
        END AS kind
    FROM seen
),
renewed AS (
    UPDATE public.distlock_holder AS h SET
        expires_at = now + {ttl} * interval '1 second',
        backend = CASE WHEN elsewhere THEN h.backend ELSE {session} END
    FROM outcome
    WHERE h.name = {name} AND h.index = outcome.index AND kind = 'renewed'
    RETURNING h.backend
),
longer AS (
    UPDATE public.distlock_lock AS lock SET expires_at = greatest(
        now + {ttl} * interval '1 second',
        (SELECT max(p.expires_at) FROM places AS p WHERE p.alive AND p.index <> outcome.index)
    )
    FROM outcome
    WHERE lock.name = {name} AND kind = 'renewed'
)
SELECT
    kind,
    pg_backend_pid(),
    version,
    encode(revoked_by, 'hex'),
    (SELECT backend FROM renewed),
    {on_disk}
FROM outcome;
