-- What a server says of itself to whoever asks whether it is fit to keep locks. Needs no right beyond a login.
--
-- gives  one row: version, whether it is a standby, its clock as Unix time, synchronous_commit,
--        connections allowed beside those reserved, connections there are,
--        idle_session_timeout in ms (0: none, or a server that does not know it), pid of the session that answers

SELECT
    current_setting('server_version'),
    pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
    extract(epoch FROM clock_timestamp()),
    current_setting('synchronous_commit'),
    (SELECT sum(CASE WHEN name = 'max_connections' THEN setting::integer ELSE -setting::integer END) FROM pg_settings
        WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')),
    (SELECT count(*) FROM pg_stat_get_activity(NULL) AS a WHERE a.usesysid IS NOT NULL AND a.datid IS NOT NULL),
    coalesce((SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout'), '0'),
    pg_backend_pid();
