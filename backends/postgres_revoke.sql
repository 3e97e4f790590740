-- Takes the lease away from a holder, if it is still this one, and tells it.
--
-- in     name
--        meant: whether the record is that of the holder meant
--        by: who does it
--        at_once: whether the lock is free now, or when its holder gives it back or its TTL is over. One that is kept
--              is free now: nobody works under it
--        everyone: the channel of all who wait for this lock
--        session: what has to be done with the session that has an advisory lock, for the lock to be free now:
--              null: nothing; own: ours has it; ended: it can be ended; refused: it may not be
--        end: does it
-- gives  one row: layout, kind, what was to be done with the session and its pid, four columns of no use,
--        the lock's owner. Kinds:
--        revoked
--        another: the holder is somebody else or nobody. Nothing was done
--        refused: what has to be done for it cannot be. Nothing was done
--        layout: not a version that this program knows. Nothing was done

WITH record AS MATERIALIZED (
    SELECT token, owner, ttl, expires_at, kept, channel, backend FROM public.distlock_lock
    WHERE name = {name} FOR UPDATE
),
instant AS MATERIALIZED (
    SELECT clock_timestamp() AS now, locked FROM (SELECT count(*) AS locked FROM record) AS first
),
seen AS MATERIALIZED (
    SELECT
        now,
        version,
        owner AS holder,
        channel,
        backend,
        {at_once} OR coalesce(kept, false) AS at_once,
        ttl,
        expires_at,
        coalesce(owner NOT LIKE 'several-%' AND expires_at > now AND {meant}, false) AS meant
    FROM instant
        CROSS JOIN (SELECT max(version) AS version FROM public.distlock_layout) AS layout
        LEFT JOIN record ON true
),
in_the_way AS MATERIALIZED (
    SELECT *, CASE WHEN meant AND at_once THEN {session} END AS session FROM seen
),
outcome AS MATERIALIZED (
    SELECT
        *,
        CASE
            WHEN version IS DISTINCT FROM {layout} THEN 'layout'
            WHEN NOT meant THEN 'another'
            WHEN session = 'refused' THEN 'refused'
            ELSE 'revoked'
        END AS kind
    FROM in_the_way
),
changed AS (
    UPDATE public.distlock_lock AS lock SET
        owner = CASE WHEN NOT at_once THEN lock.owner END,
        details = CASE WHEN NOT at_once THEN lock.details END,
        channel = CASE WHEN NOT at_once THEN lock.channel END,
        ttl = CASE WHEN at_once THEN 0 ELSE lock.ttl END,
        expires_at = CASE WHEN at_once THEN now ELSE lock.expires_at END,
        revoked_by = CASE WHEN NOT at_once THEN {by} END,
        kept = false
    FROM outcome
    WHERE lock.name = {name} AND kind = 'revoked'
),
queue AS MATERIALIZED (
    SELECT w.owner, w.place, w.channel, {living} AS living
    FROM public.distlock_waiter AS w, outcome
    WHERE w.name = {name} AND kind = 'revoked' AND at_once
    FOR UPDATE OF w
),
gone AS (
    DELETE FROM public.distlock_waiter AS w
    WHERE w.name = {name} AND w.owner IN (SELECT owner FROM queue WHERE NOT living)
)
SELECT
    version,
    kind,
    session,
    backend,
    CASE WHEN kind = 'revoked' THEN {end} END,
    CASE WHEN kind = 'revoked' AND channel IS NOT NULL THEN pg_notify(channel, '') END,
    CASE WHEN kind = 'revoked' AND at_once THEN pg_notify(
        coalesce((SELECT channel FROM queue WHERE living ORDER BY place, owner LIMIT 1), {everyone}), ''
    ) END,
    {on_disk},
    holder
FROM outcome;
