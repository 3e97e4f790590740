-- A lock that was released and for which nobody waits, or nobody before us: most are had so. Everything else is left to
-- postgres_acquire.sql, of which this is the short way: it costs the server a fraction.
--
-- in     as postgres_acquire.sql
-- gives  its row, granted; none, and nothing was done, if the lock is not of that kind or just being changed by others
--
-- What is seen here is never old enough to matter: whoever waits came before the release that the statement sees.

WITH granted AS (
    UPDATE public.distlock_lock AS lock SET
        token = greatest(lock.token + 1, free.microseconds),
        owner = {owner},
        ttl = {ttl},
        expires_at = free.now + {ttl} * interval '1 second',
        channel = {channel},
        backend = {session},
        details = {holding}
    FROM (
        SELECT name, now, (extract(epoch FROM now) * 1000000)::bigint AS microseconds
        FROM (SELECT name, clock_timestamp() AS now FROM public.distlock_lock
            WHERE name = {name} AND owner IS NULL FOR UPDATE SKIP LOCKED) AS released
    ) AS free
    WHERE lock.name = free.name
        AND ({not_after} = 0 OR free.microseconds < {not_after})
        AND (SELECT max(version) FROM public.distlock_layout) = {layout}
        AND NOT EXISTS (
            SELECT FROM public.distlock_waiter AS w
            WHERE w.name = {name} AND w.owner <> {owner}
                AND ({place} = 0 OR (w.place, w.owner) < ({place}, {owner}))
        )
    RETURNING lock.token, free.microseconds
),
gone AS (
    DELETE FROM public.distlock_waiter AS w USING granted WHERE w.name = {name} AND w.owner = {owner}
)
SELECT
    'granted', microseconds, pg_backend_pid(), token, NULL, NULL, NULL, NULL, NULL,
    {on_disk}
FROM granted;
