-- The lock's row and its holders when there may be several, as the beginning of a statement on them.
--
-- in     name
--
-- Two statements in one message are one transaction, and the second sees what was done before the first had the row:
-- so each step sees the holders as its predecessor left them, also those that were not there when it was sent. All who
-- change them have the row, and each grant changes it too: a session that reads as of its beginning is undone then, and
-- sent again. A row that somebody made between the two is not ours to act on, and passes for one that is not there.

SELECT set_config('distlock.has', 'row', true)
FROM (SELECT FROM public.distlock_lock WHERE name = {name} FOR UPDATE) AS locked;
WITH record AS MATERIALIZED (
    SELECT * FROM public.distlock_lock WHERE name = {name} AND current_setting('distlock.has', true) = 'row'
),
instant AS MATERIALIZED (
    SELECT clock_timestamp() AS now, (SELECT max(version) FROM public.distlock_layout) AS version
),
-- What a group that is over has left behind lives no more.
places AS MATERIALIZED (
    SELECT h.*, coalesce(record.owner LIKE 'several-%', false) AND h.expires_at > now AS alive
    FROM instant CROSS JOIN public.distlock_holder AS h LEFT JOIN record ON true
    WHERE h.name = {name}
),
