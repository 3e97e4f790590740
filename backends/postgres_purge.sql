-- Forgets locks that nobody uses. Those that are just being used by somebody are passed over.
--
-- in     names
--        unused_for: seconds since they were used last
--        key: of the advisory lock that keeps this apart from locks that are used for the first time
--        shared: whether sessions that share an advisory lock are gone, though their leases are over
--        holders: forgets what is left of several holders, or nothing
-- gives  the names that were forgotten, in hexadecimal
--
-- What is released without a crash in mind, and made anew by somebody else, is the same row for both. The row without a
-- name, which no lock has, remembers the greatest token of all: records made later begin above it.
-- Who has waited for one since the statement began makes its record anew with the next try.

SELECT pg_advisory_xact_lock({key});
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, (SELECT max(version) FROM public.distlock_layout) AS version
),
unused AS MATERIALIZED (
    SELECT lock.name, lock.token
    FROM public.distlock_lock AS lock, clock
    WHERE lock.name IN ({names}) AND version = {layout}
        AND (lock.owner IS NULL OR lock.expires_at <= now)
        AND coalesce(lock.expires_at <= now - {unused_for} * interval '1 second', true)
        AND coalesce(lock.succeeded_at + interval '{success_kept} seconds' <= now, true)
        AND NOT EXISTS (SELECT FROM pg_stat_get_activity(lock.backend) WHERE lock.backend IS NOT NULL)
        AND {shared}
        AND NOT EXISTS (SELECT FROM public.distlock_waiter AS w WHERE w.name = lock.name AND {living})
        AND NOT EXISTS (SELECT FROM public.distlock_mark AS m WHERE m.name = lock.name AND m.kept_until > now)
    FOR UPDATE OF lock SKIP LOCKED
),
waiters AS (
    DELETE FROM public.distlock_waiter AS w USING unused WHERE w.name = unused.name
),
marks AS (
    DELETE FROM public.distlock_mark AS m USING unused WHERE m.name = unused.name
),
{holders}
forgotten AS (
    DELETE FROM public.distlock_lock AS lock USING unused WHERE lock.name = unused.name
),
floor AS (
    INSERT INTO public.distlock_lock AS lock (name, token)
    SELECT ''::bytea, max(token) FROM unused HAVING count(*) > 0
    ON CONFLICT (name) DO UPDATE SET token = greatest(lock.token, excluded.token)
)
SELECT
    encode(unused.name, 'hex'),
    {on_disk}
FROM unused
ORDER BY unused.name;
