-- Gives up what an owner has, the lock or a place in the queue, and wakes the next if the lock is free now. Touches
-- nothing of anybody else's. A waiter leaves by it too: a try whose answer was lost may have been granted.
--
-- in     name, owner
--        everyone: the channel of all who wait for this lock
--        keep: seconds for which the lock is kept, nobody's; 0: it is free
--        succeeded: seconds since its run started, if it succeeded; else null
--        marks: postgres_marks.sql, or nothing
--        commit: 'on', if this has to be on disk when it is answered, or 'off'
--        unlock: done when the lease is given up
-- gives  one row: layout (nothing was done if this program does not know it), and what of no use was computed
--
-- A waiter that entered the queue since the statement began is not seen by it (postgres_acquire.sql says what is).
-- When nobody else is there to be woken, all who listen are: it is among them, or has yet to try once more.
-- If another session than ours has an advisory lock, it has it still: its pid stays on record.
-- A release that a crash undoes leaves the lock to its TTL; so nobody waits for the disk, but for marks and a lock to keep.
-- A lease that ran out and went to nobody is given up too, but nothing else is done then: it was held no more.

WITH record AS MATERIALIZED (
    SELECT owner, expires_at, kept FROM public.distlock_lock WHERE name = {name} FOR UPDATE
),
instant AS MATERIALIZED (
    SELECT clock_timestamp() AS now, locked FROM (SELECT count(*) AS locked FROM record) AS first
),
seen AS MATERIALIZED (
    SELECT
        now,
        version,
        version IS NOT DISTINCT FROM {layout} AS known,
        version IS NOT DISTINCT FROM {layout} AND coalesce(owner = {owner} AND NOT kept, false) AS ours,
        version IS NOT DISTINCT FROM {layout} AND coalesce(owner = {owner} AND NOT kept AND expires_at > now, false) AS held,
        owner IS NULL OR owner = {owner} AND NOT kept AND {keep} = 0 OR expires_at <= now AS free
    FROM instant
        CROSS JOIN (SELECT max(version) AS version FROM public.distlock_layout) AS layout
        LEFT JOIN record ON true
),
freed AS (
    UPDATE public.distlock_lock AS lock SET
        owner = CASE WHEN held AND {keep} > 0 THEN lock.owner END,
        details = CASE WHEN held AND {keep} > 0 THEN lock.details END,
        kept = held AND {keep} > 0,
        ttl = CASE WHEN held THEN {keep} ELSE 0 END,
        expires_at = now + CASE WHEN held THEN {keep} ELSE 0 END * interval '1 second',
        channel = NULL,
        revoked_by = NULL,
        backend = nullif(lock.backend, pg_backend_pid()),
        succeeded_at = CASE WHEN held THEN coalesce(now - {succeeded} * interval '1 second', succeeded_at)
            ELSE succeeded_at END
    FROM seen
    WHERE lock.name = {name} AND ours
),
{marks}
queue AS MATERIALIZED (
    SELECT w.owner, w.place, w.channel, {living} AS living
    FROM public.distlock_waiter AS w, seen
    WHERE w.name = {name} AND w.owner <> {owner} AND known AND free
    FOR UPDATE OF w
),
gone AS (
    DELETE FROM public.distlock_waiter AS w USING seen
    WHERE w.name = {name} AND known AND (w.owner = {owner} OR w.owner IN (SELECT owner FROM queue WHERE NOT living))
)
SELECT
    version,
    {unlock},
    CASE WHEN known AND free THEN pg_notify(
        coalesce((SELECT channel FROM queue WHERE living ORDER BY place, owner LIMIT 1), {everyone}), ''
    ) END,
    set_config('synchronous_commit', CASE
        WHEN {commit} = 'on' AND current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply'
        ELSE {commit}
    END, true)
FROM seen;
