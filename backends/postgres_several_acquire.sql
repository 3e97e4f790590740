-- One try to be one of several holders; in vain, it takes a place in the queue or shows that we still wait in it.
--
-- in     places: postgres_several.sql
--        holders: how many there may be; group: the lock's owner while it is held by so many
--        end_dead: ends sessions that have something of a lease that ran out
--        the others as postgres_acquire.sql; key and session, of our advisory lock, are stored with the holder
-- gives  a row of postgres_acquire.sql, with two more columns: the owner of the lock if it is held, our index. One more
--        kind of it:
--        others: it is held with another number of holders
--
-- To those who know of no groups the row is that of a lock that is held until the last lease of the group is over.
-- Waiters who ask for another number stand before us while nobody holds the lock. Later they will be refused, and are
-- passed over.

{places}
seen AS MATERIALIZED (
    SELECT
        now,
        version,
        (extract(epoch FROM now) * 1000000)::bigint AS microseconds,
        record.token, record.owner AS holder, record.expires_at, record.backend,
        record.expires_at - record.ttl * interval '1 second' AS renewed_at,
        CASE WHEN record.owner <> {group} THEN record.channel END AS displaced,
        record.owner IS NULL OR record.expires_at <= now AS free,
        coalesce(record.owner = {group} AND record.expires_at > now, false) AS ours,
        now > statement_timestamp() + {timeout} * interval '1 second'
            OR {not_after} > 0 AND extract(epoch FROM now) * 1000000 > {not_after} AS late,
        (SELECT index FROM places WHERE alive AND NOT kept AND owner = {owner}) AS mine
    FROM instant LEFT JOIN record ON true
),
queue AS MATERIALIZED (
    SELECT
        w.owner, w.channel, w.seen_at, {living} AS living, {waiters_holders} AS holders, w.place,
        {place} = 0 OR (w.place, w.owner) < ({place}, {owner}) AS before
    FROM public.distlock_waiter AS w, seen
    WHERE w.name = {name} AND w.owner <> {owner} AND (seen.free OR {waiters_holders} = {holders})
),
first AS MATERIALIZED (
    SELECT channel, seen_at, before FROM queue WHERE living ORDER BY place, owner LIMIT 1
),
room AS MATERIALIZED (
    SELECT
        {holders} - (SELECT count(*) FROM places WHERE alive) AS places,
        count(*) AS before,
        coalesce(bool_or(holders <> {holders}), false) AS others
    FROM queue WHERE living AND before
),
outcome AS MATERIALIZED (
    SELECT
        seen.*,
        room.places,
        coalesce(mine, (
            SELECT min(i) FROM generate_series(0, {holders} - 1) AS i
            WHERE i NOT IN (SELECT index FROM places WHERE alive)
        )) AS index,
        CASE
            WHEN version IS DISTINCT FROM {layout} THEN 'layout'
            WHEN token IS NULL THEN 'missing'
            WHEN late THEN 'late'
            WHEN NOT free AND NOT ours THEN 'others'
            WHEN mine IS NULL AND (room.places <= room.before OR room.others) THEN 'waiting'
            WHEN {gate} THEN 'granted'
            ELSE 'foreign'
        END AS kind
    FROM seen, room
),
granted AS (
    UPDATE public.distlock_lock AS lock SET
        token = CASE WHEN mine IS NULL THEN greatest(lock.token + 1, microseconds) ELSE lock.token END,
        owner = {group},
        ttl = {ttl},
        expires_at = greatest(
            now + {ttl} * interval '1 second',
            (SELECT max(expires_at) FROM places WHERE alive AND index <> outcome.index)
        ),
        channel = NULL,
        backend = NULL,
        advisory_key = coalesce({key}, advisory_key),
        details = {holding},
        kept = false,
        revoked_by = NULL
    FROM outcome
    WHERE lock.name = {name} AND kind = 'granted'
    RETURNING lock.token
),
taken AS (
    INSERT INTO public.distlock_holder AS h (name, index, owner, token, ttl, expires_at, channel, backend, details)
    SELECT
        {name}, outcome.index, {owner},
        CASE WHEN mine IS NULL THEN granted.token ELSE (SELECT p.token FROM places AS p WHERE p.index = mine) END,
        {ttl}, now + {ttl} * interval '1 second', {channel}, {session}, {holding}
    FROM outcome, granted
    ON CONFLICT (name, index) DO UPDATE SET
        owner = excluded.owner,
        token = excluded.token,
        ttl = excluded.ttl,
        expires_at = excluded.expires_at,
        channel = excluded.channel,
        backend = excluded.backend,
        details = excluded.details,
        kept = false,
        revoked_by = CASE WHEN h.owner = excluded.owner AND h.token = excluded.token THEN h.revoked_by END
    RETURNING h.token
),
over AS (
    DELETE FROM public.distlock_holder AS h USING outcome
    WHERE h.name = {name} AND kind = 'granted' AND h.index <> outcome.index
        AND h.index IN (SELECT index FROM places WHERE NOT alive)
),
gone AS (
    DELETE FROM public.distlock_waiter AS w USING outcome
    WHERE w.name = {name} AND (
        w.owner = {owner} AND kind IN ('granted', 'others')
        OR kind IN ('granted', 'waiting', 'foreign') AND outcome.places > 0
            AND w.owner IN (SELECT owner FROM queue WHERE NOT living)
    )
),
{postgres_enter.sql}
SELECT
    kind,
    microseconds,
    pg_backend_pid(),
    (SELECT token FROM taken),
    CASE WHEN kind = 'layout' THEN version ELSE (SELECT place FROM entered) END,
    CASE
        WHEN kind = 'foreign' THEN {evict}
        WHEN kind <> 'waiting' THEN NULL
        WHEN places > 0 THEN (SELECT extract(epoch FROM seen_at - now) FROM first) + {stale_after}
        ELSE extract(epoch FROM (SELECT min(p.expires_at) FROM places AS p WHERE p.alive) - now) + 0.001 + 0.03 * (
            SELECT count(*) FROM queue WHERE before
        )
    END,
    -- Who is first is woken again, in case that it missed the release; and by whoever gets a place and leaves another:
    -- what frees several at once wakes one.
    CASE WHEN kind = 'waiting' AND places > 0 OR kind = 'granted' AND mine IS NULL AND places > 1
        THEN (SELECT pg_notify(channel, '') FROM first) END,
    -- Told, if their leases ran out without their knowing.
    CASE WHEN kind = 'granted' THEN (
        SELECT count(pg_notify(p.channel, '')) FROM places AS p WHERE NOT p.alive AND p.channel IS NOT NULL
    ) + CASE WHEN displaced IS NOT NULL THEN length(pg_notify(displaced, '')::text) ELSE 0 END END,
    {tidy},
    CASE WHEN kind = 'granted' THEN {on_disk} ELSE set_config('synchronous_commit', 'off', true) END,
    CASE WHEN NOT free THEN holder END,
    index,
    CASE WHEN kind = 'granted' THEN {end_dead} END
FROM outcome;
