-- The end of postgres_mark.sql and postgres_several_mark.sql, after seen: writes if the lock is held so.

{marks}
succeeded AS (
    UPDATE public.distlock_lock AS lock SET succeeded_at = now - {succeeded} * interval '1 second'
    FROM seen
    WHERE lock.name = {name} AND held AND {succeeded} IS NOT NULL
)
SELECT
    version,
    held,
    {on_disk}
FROM seen;
