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
    set_config('synchronous_commit', CASE
        WHEN current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply' ELSE 'on'
    END, true)
FROM layout;
