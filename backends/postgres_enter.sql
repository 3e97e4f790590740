-- A part of postgres_acquire.sql and postgres_several_acquire.sql: who was not granted the lock takes a place in the queue,
-- or shows that it still waits in it. After outcome, with what they have of it; gives entered, the place.

-- The dead are dropped when they stand in somebody's way. Behind a lock that is held for weeks they do not, and would
-- pile up: so each newcomer looks for them too.
stale AS MATERIALIZED (
    SELECT w.name, w.owner
    FROM public.distlock_waiter AS w, outcome
    WHERE {place} = 0 AND kind IN ('waiting', 'foreign') AND w.seen_at < now - interval '10 seconds'
    FOR UPDATE OF w SKIP LOCKED
),
swept AS (
    DELETE FROM public.distlock_waiter AS w USING stale WHERE w.name = stale.name AND w.owner = stale.owner
),
entered AS (
    INSERT INTO public.distlock_waiter AS w (name, owner, place, seen_at, channel, backend, details)
    SELECT
        {name}, {owner},
        CASE WHEN {place} > 0 THEN {place} ELSE greatest(
            microseconds, (SELECT max(place) + 1 FROM public.distlock_waiter WHERE name = {name})
        ) END,
        now, {channel}, CASE WHEN pg_backend_pid() = {pid} THEN {pid} END, {waiting}
    FROM outcome
    WHERE kind IN ('waiting', 'foreign')
    ON CONFLICT (name, owner) DO UPDATE SET seen_at = excluded.seen_at, backend = excluded.backend
    RETURNING w.place
)
