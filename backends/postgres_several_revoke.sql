-- Takes the lease away from one of several holders, if it is still this one, and tells it. The others go on.
--
-- in     places: postgres_several.sql; the others as postgres_revoke.sql
-- gives  a row of postgres_revoke.sql

{places}
seen AS MATERIALIZED (
    SELECT now, version, mine.index, channel, backend, ttl, expires_at, {at_once} OR coalesce(kept, false) AS at_once
    FROM instant LEFT JOIN (SELECT * FROM places WHERE alive AND {meant} LIMIT 1) AS mine ON true
),
in_the_way AS MATERIALIZED (
    SELECT *, CASE WHEN index IS NOT NULL AND at_once THEN {session} END AS session FROM seen
),
outcome AS MATERIALIZED (
    SELECT
        *,
        CASE
            WHEN version IS DISTINCT FROM {layout} THEN 'layout'
            WHEN index IS NULL THEN 'another'
            WHEN session = 'refused' THEN 'refused'
            ELSE 'revoked'
        END AS kind
    FROM in_the_way
),
marked_so AS (
    UPDATE public.distlock_holder AS h SET revoked_by = {by}
    FROM outcome
    WHERE h.name = {name} AND h.index = outcome.index AND kind = 'revoked' AND NOT at_once
),
taken_away AS (
    DELETE FROM public.distlock_holder AS h USING outcome
    WHERE h.name = {name} AND h.index = outcome.index AND kind = 'revoked' AND at_once
),
rest AS MATERIALIZED (
    SELECT (SELECT max(p.expires_at) FROM places AS p WHERE p.alive AND p.index <> outcome.index) AS until FROM outcome
),
changed AS (
    UPDATE public.distlock_lock AS lock SET
        owner = CASE WHEN rest.until IS NOT NULL THEN lock.owner END,
        details = CASE WHEN rest.until IS NOT NULL THEN lock.details END,
        ttl = CASE WHEN rest.until IS NOT NULL THEN lock.ttl ELSE 0 END,
        expires_at = coalesce(rest.until, now)
    FROM outcome, rest
    WHERE lock.name = {name} AND kind = 'revoked' AND at_once
),
queue AS MATERIALIZED (
    SELECT w.owner, w.place, w.channel, {living} AS living
    FROM public.distlock_waiter AS w, outcome, rest, record
    WHERE w.name = {name} AND kind = 'revoked' AND at_once
        AND (rest.until IS NULL OR 'several-' || {waiters_holders} = record.owner)
)
SELECT
    version,
    kind,
    session,
    backend,
    CASE WHEN kind = 'revoked' THEN {end} END,
    CASE WHEN kind = 'revoked' AND channel IS NOT NULL THEN pg_notify(channel, '') END,
    (SELECT pg_notify(channel, '') FROM queue WHERE living ORDER BY place, owner LIMIT 1),
    {on_disk}
FROM outcome;
