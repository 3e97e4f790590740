-- What decides whether a grant outlives a crash and a failover. Needs no right beyond a login.
--
-- gives  one row: fsync, full_page_writes, whether a table of ours is not logged,
--        standbys that are asynchronous (names, separated by ", "),
--        how many standbys there are of which this role may not see what they are

SELECT
    current_setting('fsync'),
    current_setting('full_page_writes'),
    EXISTS (
        SELECT FROM pg_class
        WHERE oid IN (to_regclass('public.distlock_lock'), to_regclass('public.distlock_waiter'),
            to_regclass('public.distlock_layout'), to_regclass('public.distlock_mark'), to_regclass('public.distlock_fence'),
            to_regclass('public.distlock_holder')) AND relpersistence <> 'p' AND relname <> 'distlock_waiter'
    ),
    string_agg(coalesce(nullif(application_name, ''), 'unnamed'), ', ' ORDER BY application_name)
        FILTER (WHERE sync_state IN ('async', 'potential')
            OR sync_state IS NULL AND current_setting('synchronous_standby_names') = ''),
    count(*) FILTER (WHERE sync_state IS NULL AND current_setting('synchronous_standby_names') <> '')
FROM pg_stat_replication
WHERE state IS DISTINCT FROM 'backup';
