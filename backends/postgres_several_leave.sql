-- Gives up what an owner has of a lock that several may hold, or its place in the queue, and wakes the next if there is
-- a place to be had. Touches nothing of anybody else's.
--
-- in     places: postgres_several.sql
--        holders, group, end_dead as in postgres_several_acquire.sql; the others as postgres_leave.sql
-- gives  a row of postgres_leave.sql

{places}
seen AS MATERIALIZED (
    SELECT
        now,
        version,
        version IS NOT DISTINCT FROM {layout} AS known,
        version IS NOT DISTINCT FROM {layout} AND coalesce(mine.alive AND record.owner = {group}, false) AS held,
        version IS NOT DISTINCT FROM {layout} AND coalesce(record.owner = {group}, false) AS ours,
        mine.index,
        record.owner IS NULL OR record.expires_at <= now AS free,
        -- Until when others have the lock.
        (SELECT max(p.expires_at) FROM places AS p WHERE p.alive AND p.index IS DISTINCT FROM mine.index) AS others_until
    FROM instant
        LEFT JOIN record ON true
        LEFT JOIN (SELECT index, alive FROM places WHERE owner = {owner} AND NOT kept ORDER BY alive DESC LIMIT 1) AS mine
            ON true
),
kept AS (
    UPDATE public.distlock_holder AS h SET
        kept = true,
        channel = NULL,
        backend = NULL,
        revoked_by = NULL,
        ttl = {keep},
        expires_at = now + {keep} * interval '1 second'
    FROM seen
    WHERE h.name = {name} AND h.index = seen.index AND held AND {keep} > 0
    RETURNING h.expires_at
),
given_up AS (
    DELETE FROM public.distlock_holder AS h USING seen
    WHERE h.name = {name} AND known AND (
        h.index = seen.index AND NOT (held AND {keep} > 0)
        OR ours AND h.index IN (SELECT p.index FROM places AS p WHERE NOT p.alive AND p.owner <> {owner})
    )
),
rest AS MATERIALIZED (
    SELECT
        greatest(others_until, (SELECT expires_at FROM kept)) AS until,
        (SELECT count(*) FROM places AS p WHERE p.alive AND p.index IS DISTINCT FROM seen.index)
            + (SELECT count(*) FROM kept) AS holders
    FROM seen
),
freed AS (
    UPDATE public.distlock_lock AS lock SET
        owner = CASE WHEN rest.until IS NOT NULL THEN lock.owner END,
        details = CASE WHEN rest.until IS NOT NULL THEN lock.details END,
        ttl = CASE WHEN rest.until IS NOT NULL THEN lock.ttl ELSE 0 END,
        expires_at = coalesce(rest.until, now),
        succeeded_at = CASE WHEN held THEN coalesce(now - {succeeded} * interval '1 second', succeeded_at)
            ELSE succeeded_at END
    FROM seen, rest
    WHERE lock.name = {name} AND ours AND seen.index IS NOT NULL
),
{marks}
queue AS MATERIALIZED (
    SELECT w.owner, w.place, w.channel, {living} AS living
    FROM public.distlock_waiter AS w, seen, rest
    WHERE w.name = {name} AND w.owner <> {owner} AND known
        AND CASE
            WHEN free OR ours AND rest.until IS NULL THEN true
            ELSE ours AND rest.holders < {holders} AND {waiters_holders} = {holders}
        END
),
gone AS (
    DELETE FROM public.distlock_waiter AS w USING seen
    WHERE w.name = {name} AND known AND (w.owner = {owner} OR w.owner IN (SELECT owner FROM queue WHERE NOT living))
)
SELECT
    version,
    {unlock},
    (SELECT pg_notify(channel, '') FROM queue WHERE living ORDER BY place, owner LIMIT 1),
    set_config('synchronous_commit', CASE
        WHEN {commit} = 'on' AND current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply'
        ELSE {commit}
    END, true),
    CASE WHEN ours THEN {end_dead} END
FROM seen;
