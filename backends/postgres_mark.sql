-- Writes a mark while an owner holds the lock.
--
-- in     name, owner
--        succeeded: seconds since its run started, if that is marked; else null
--        marks: postgres_marks.sql, or nothing
-- gives  one row: layout (nothing was done if this program does not know it), whether the lock was held so

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
        version IS NOT DISTINCT FROM {layout} AND coalesce(owner = {owner} AND NOT kept AND expires_at > now, false) AS held
    FROM instant
        CROSS JOIN (SELECT max(version) AS version FROM public.distlock_layout) AS layout
        LEFT JOIN record ON true
),
{postgres_mark_seen.sql}
