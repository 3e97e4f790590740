-- Forgets the greatest token that a resource has seen.
--
-- in     resource, index
-- gives  one row: layout (nothing was done if this program does not know it)

WITH layout AS MATERIALIZED (
    SELECT max(version) AS version FROM public.distlock_layout
),
gone AS (
    DELETE FROM public.distlock_fence AS fence USING layout
    WHERE fence.resource = {resource} AND fence.index = {index} AND version = {layout}
)
SELECT
    version,
    {on_disk}
FROM layout;
