-- The mark of one slot. Writes nothing, so that a standby can answer too.
--
-- in     found: a query for began_at of the mark and until, when it may be forgotten
-- gives  one row: layout, when what is marked began, and seconds since; nulls if there is no mark

SELECT
    layout.version,
    extract(epoch FROM mark.began_at),
    extract(epoch FROM clock.now - mark.began_at)
FROM (SELECT max(version) AS version FROM public.distlock_layout) AS layout
    CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
    LEFT JOIN ({found}) AS mark ON mark.until > clock.now;
