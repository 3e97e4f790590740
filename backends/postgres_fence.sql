-- Remembers a token as the greatest that a resource has seen, if it is. On disk when it is answered: one that is not
-- greater writes too, and so waits for the one that was.
--
-- in     resource, index, token
--        used: notes when that was, or nothing
-- gives  one row: layout (nothing was done if this program does not know it), the greatest token there is now

WITH layout AS MATERIALIZED (
    SELECT max(version) AS version FROM public.distlock_layout
),
advanced AS (
    INSERT INTO public.distlock_fence AS fence (resource, index, token)
    SELECT {resource}, {index}, {token} FROM layout WHERE version = {layout}
    ON CONFLICT (resource, index) DO UPDATE SET token = greatest(fence.token, excluded.token){used}
    RETURNING token
)
SELECT
    version,
    (SELECT token FROM advanced),
    {on_disk}
FROM layout;
