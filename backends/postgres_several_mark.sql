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
{postgres_mark_seen.sql}
