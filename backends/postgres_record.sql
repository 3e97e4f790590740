-- A lock's row, which the statements on it lock first; without it there is nothing to lock. One that is there stays.
--
-- in     name
--        key: of the advisory lock that a purge has while it remembers what it removes
-- gives  nothing of use
--
-- The row without a name has the greatest token that was ever purged: postgres_purge.sql.

SELECT pg_advisory_xact_lock_shared({key});
INSERT INTO public.distlock_lock (name, token)
SELECT {name}, coalesce((SELECT token FROM public.distlock_lock WHERE name = ''::bytea), 0)
ON CONFLICT DO NOTHING;
