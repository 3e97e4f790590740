-- A lock's row, which the statements on it lock first; without it there is nothing to lock. One that is there stays.
--
-- in     name
-- gives  nothing

INSERT INTO public.distlock_lock (name, token) VALUES ({name}, 0) ON CONFLICT DO NOTHING;
