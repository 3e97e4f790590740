-- Forgets the registers of resources none of which was asked for lately.
--
-- in     names: of resources
--        unused_for: seconds
-- gives  the names that were forgotten, in hexadecimal

WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now, (SELECT max(version) FROM public.distlock_layout) AS version
),
forgotten AS (
    DELETE FROM public.distlock_fence AS fence USING clock
    WHERE fence.resource IN ({names}) AND version = {layout}
        AND fence.used_at <= now - {unused_for} * interval '1 second'
        AND NOT EXISTS (
            SELECT FROM public.distlock_fence AS other
            WHERE other.resource = fence.resource AND other.used_at > now - {unused_for} * interval '1 second'
        )
    RETURNING fence.resource
)
SELECT encode(resource, 'hex') FROM (SELECT DISTINCT resource FROM forgotten) AS each ORDER BY resource;
