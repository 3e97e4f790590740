-- Writes marks, as a part of a statement that locks the lock's row and says in `seen` whether it is held by who writes.
-- Those that are over are dropped with it, of any lock, some at a time: of locks that are used no more too.
--
-- in     name
--        values: slot, seconds since what is marked began, seconds for which it is remembered; and so on

new_marks AS MATERIALIZED (
    SELECT slot, now - ago * interval '1 second' AS began_at, now + keep * interval '1 second' AS kept_until
    FROM seen, (VALUES {values}) AS given (slot, ago, keep)
    WHERE held
),
marks_over AS MATERIALIZED (
    SELECT m.name, m.slot
    FROM public.distlock_mark AS m, seen
    WHERE held AND m.kept_until <= now AND NOT (m.name = {name} AND m.slot IN (SELECT slot FROM new_marks))
    ORDER BY m.kept_until LIMIT 100
    FOR UPDATE OF m SKIP LOCKED
),
forgotten AS (
    DELETE FROM public.distlock_mark AS m USING marks_over WHERE m.name = marks_over.name AND m.slot = marks_over.slot
),
marked AS (
    INSERT INTO public.distlock_mark AS m (name, slot, began_at, kept_until)
    SELECT {name}, slot, began_at, kept_until FROM new_marks
    ON CONFLICT (name, slot) DO UPDATE SET began_at = excluded.began_at, kept_until = excluded.kept_until
),
