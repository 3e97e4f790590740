-- One try to get a lock; in vain, it takes a place in the queue or shows that we still wait in it.
--
-- in     name, owner, ttl in seconds
--        holding, waiting: details to store as the holder, as a waiter
--        channel: ours          pid: of our session, as the server told it when we connected
--        place: from an earlier try, 0 if there was none: it is ours again if we were dropped for dead
--        timeout: seconds for which we wait for the answer
--        not_after: server time in µs after which we do not wait for it any more, 0 if unknown
--        gate: what else must be true for a grant, asked for when nothing else stands against it
--        evict: shows out whose session is in the way without a lease, when gate was false: seconds until it is gone
--        tidy: gives back what our session still has of an earlier lease
--        session, key: what a grant stores in backend and advisory_key
-- gives  one row: kind, server time in µs, pid of the session that answers, token, place, seconds after which to look
--        again (null: no particular time), two columns of no use, whether something was given back, one more of no
--        use, the owner of the lock if it is held, the one on record. Kinds:
--        granted
--        waiting, foreign: gate was false
--        missing: there is no row for the lock yet. Nothing was done
--        late: nothing was done. A statement that a stalled server or network delivers after its sender has gone
--              would lock everybody out for a TTL
--        layout: not a version that this program knows; it is in place. Nothing was done
--
-- A lock that is already ours was granted by a try whose answer was lost: the same token, a new TTL. An operator who has
-- taken it away since has done so: the first renewal tells.
--
-- The record is locked first, by whoever does anything to the lock, so all are served one after the other, and each
-- sees it as its predecessor left it. Waiters are read as of the beginning of the statement; locking them brings those
-- up to date that were changed or dropped since. One who came since stays unseen: it came at the same time as we did,
-- so either order is right; the release takes care that it is woken.

WITH record AS MATERIALIZED (
    SELECT token, owner, ttl, expires_at, channel, backend, kept FROM public.distlock_lock WHERE name = {name} FOR UPDATE
),
-- The clock is read when the record is ours, which may be long after the statement began.
instant AS MATERIALIZED (
    SELECT clock_timestamp() AS now, locked FROM (SELECT count(*) AS locked FROM record) AS first
),
seen AS MATERIALIZED (
    SELECT
        now,
        (extract(epoch FROM now) * 1000000)::bigint AS microseconds,
        record.token, record.owner AS holder, record.expires_at, record.backend,
        record.expires_at - record.ttl * interval '1 second' AS renewed_at,
        (SELECT max(version) FROM public.distlock_layout) AS version,
        CASE WHEN record.owner <> {owner} THEN record.channel END AS displaced,
        coalesce(record.owner = {owner} AND NOT record.kept AND record.expires_at > now, false) AS mine,
        record.owner IS NULL OR record.expires_at <= now AS free,
        now > statement_timestamp() + {timeout} * interval '1 second'
            OR {not_after} > 0 AND extract(epoch FROM now) * 1000000 > {not_after} AS late
    FROM instant LEFT JOIN record ON true
),
queue AS MATERIALIZED (
    SELECT w.owner, w.place, w.channel, w.seen_at, {living} AS living
    FROM public.distlock_waiter AS w, seen
    WHERE w.name = {name} AND w.owner <> {owner} AND ({place} = 0 OR (w.place, w.owner) < ({place}, {owner}))
        AND seen.free AND NOT seen.late AND seen.version = {layout}
    FOR UPDATE OF w
),
before AS MATERIALIZED (
    SELECT channel, seen_at FROM queue WHERE living ORDER BY place, owner LIMIT 1
),
outcome AS MATERIALIZED (
    SELECT
        *,
        CASE
            WHEN version IS DISTINCT FROM {layout} THEN 'layout'
            WHEN token IS NULL THEN 'missing'
            WHEN late THEN 'late'
            WHEN NOT mine AND (NOT free OR EXISTS (SELECT FROM before)) THEN 'waiting'
            WHEN {gate} THEN 'granted'
            ELSE 'foreign'
        END AS kind
    FROM seen
),
granted AS (
    UPDATE public.distlock_lock AS lock SET
        token = CASE WHEN mine THEN lock.token ELSE greatest(lock.token + 1, microseconds) END,
        owner = {owner},
        ttl = {ttl},
        expires_at = now + {ttl} * interval '1 second',
        channel = {channel},
        backend = {session},
        advisory_key = coalesce({key}, advisory_key),
        details = {holding},
        kept = false,
        revoked_by = CASE WHEN mine THEN lock.revoked_by END
    FROM outcome
    WHERE lock.name = {name} AND kind = 'granted'
    RETURNING lock.token
),
gone AS (
    DELETE FROM public.distlock_waiter AS w USING outcome
    WHERE w.name = {name}
        AND (w.owner = {owner} AND kind = 'granted' OR w.owner IN (SELECT owner FROM queue WHERE NOT living))
),
{postgres_enter.sql}
SELECT
    kind,
    microseconds,
    pg_backend_pid(),
    (SELECT token FROM granted),
    CASE WHEN kind = 'layout' THEN version ELSE (SELECT place FROM entered) END,
    CASE
        WHEN kind = 'foreign' THEN {evict}
        WHEN kind <> 'waiting' THEN NULL
        WHEN free THEN (SELECT extract(epoch FROM seen_at - now) FROM before) + {stale_after}
        -- The first in line comes when the lease ends; each behind it a little later, in case that it is dead.
        ELSE extract(epoch FROM expires_at - now) + 0.001 + 0.03 * (
            SELECT count(*) FROM public.distlock_waiter AS w
            WHERE w.name = {name} AND (w.place, w.owner) < ((SELECT place FROM entered), {owner})
        )
    END,
    -- Woken again, in case that it missed the release; and told, if its lease ran out without its knowing.
    CASE WHEN kind = 'waiting' AND free THEN (SELECT pg_notify(channel, '') FROM before) END,
    CASE WHEN kind = 'granted' AND displaced IS NOT NULL THEN pg_notify(displaced, '') END,
    {tidy},
    -- A grant is on disk before it is told, whatever the database's own setting; a place in the queue need not be.
    CASE WHEN kind = 'granted' THEN {on_disk} ELSE set_config('synchronous_commit', 'off', true) END,
    CASE WHEN NOT free THEN holder END,
    holder
FROM outcome;
