-- Writes a mark while an owner is one of several holders.
--
-- in     places: postgres_several.sql; the others as postgres_mark.sql
-- gives  a row of postgres_mark.sql

{places}
seen AS MATERIALIZED (
    SELECT
        now,
        version,
        version IS NOT DISTINCT FROM {layout}
            AND EXISTS (SELECT FROM places WHERE alive AND NOT kept AND owner = {owner}) AS held
    FROM instant
),
{marks}
succeeded AS (
    UPDATE public.distlock_lock AS lock SET succeeded_at = now - {succeeded} * interval '1 second'
    FROM seen
    WHERE lock.name = {name} AND held AND {succeeded} IS NOT NULL
)
SELECT
    version,
    held,
    set_config('synchronous_commit', CASE
        WHEN current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply' ELSE 'on'
    END, true)
FROM seen;
