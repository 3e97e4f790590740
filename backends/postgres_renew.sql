-- Starts the TTL of a lease anew if its owner still holds it and nobody has taken it away.
--
-- in     name, owner, ttl in seconds
--        elsewhere: whether the session on record has what a lock is beside its row; it stays on record then
--        gate: what must be true otherwise
--        session: what a renewal stores in backend otherwise
-- gives  one row: kind, pid of the session that answers, layout, the operator who took it away (in hexadecimal), backend,
--        and what of no use was computed. Kinds:
--        renewed; gone: the lock is free; taken: it is somebody else's; kept: it is nobody's, and not free; revoked;
--        foreign: gate was false
--        layout: not a version that this program knows. Nothing was done

WITH record AS MATERIALIZED (
    SELECT owner, ttl, expires_at, backend, kept, revoked_by FROM public.distlock_lock WHERE name = {name} FOR UPDATE
),
instant AS MATERIALIZED (
    SELECT clock_timestamp() AS now, locked FROM (SELECT count(*) AS locked FROM record) AS first
),
seen AS MATERIALIZED (
    SELECT now, version, record.*, {elsewhere} AS elsewhere
    FROM instant
        CROSS JOIN (SELECT max(version) AS version FROM public.distlock_layout) AS layout
        LEFT JOIN record ON true
),
outcome AS MATERIALIZED (
    SELECT
        now,
        version,
        revoked_by,
        elsewhere,
        CASE
            WHEN version IS DISTINCT FROM {layout} THEN 'layout'
            WHEN owner <> {owner} THEN 'taken'
            WHEN owner IS NULL OR expires_at <= now THEN 'gone'
            WHEN kept THEN 'kept'
            WHEN revoked_by IS NOT NULL THEN 'revoked'
            WHEN elsewhere THEN 'renewed'
            WHEN {gate} THEN 'renewed'
            ELSE 'foreign'
        END AS kind
    FROM seen
),
renewed AS (
    UPDATE public.distlock_lock AS lock SET
        expires_at = now + {ttl} * interval '1 second',
        backend = CASE WHEN elsewhere THEN lock.backend ELSE {session} END
    FROM outcome
    WHERE lock.name = {name} AND kind = 'renewed'
    RETURNING lock.backend
)
SELECT
    kind,
    pg_backend_pid(),
    version,
    encode(revoked_by, 'hex'),
    (SELECT backend FROM renewed),
    {on_disk}
FROM outcome;
