-- Locks as they are, for people. Writes nothing, so that a standby can answer too.
--
-- in     which: a condition on the locks wanted; they come by name
--        key: of the advisory lock that belongs to the one wanted, null if that does not matter
--        foreign: whether somebody unknown holds a lock
-- gives  a row for each lock and waiter, waiters in order; one row without a name if there is no such lock:
--        layout, name in hexadecimal, whether held, whether held by somebody unknown, token, TTL, seconds left,
--        details of the holder, details of the waiter,
--        when the last run that succeeded started, and seconds since,
--        whether it is kept, the operator who took the lease away, owner id

SELECT
    layout.version,
    encode(lock.name, 'hex'),
    coalesce(lock.expires_at > clock.now AND lock.owner IS NOT NULL, false),
    {foreign},
    lock.token,
    lock.ttl,
    extract(epoch FROM lock.expires_at - clock.now),
    lock.details,
    w.details,
    extract(epoch FROM lock.succeeded_at),
    extract(epoch FROM clock.now - lock.succeeded_at),
    lock.kept,
    encode(lock.revoked_by, 'hex'),
    lock.owner
FROM (SELECT max(version) AS version FROM public.distlock_layout) AS layout
    CROSS JOIN (SELECT clock_timestamp() AS now) AS clock
    LEFT JOIN (SELECT * FROM public.distlock_lock WHERE {which}) AS lock ON true
    LEFT JOIN public.distlock_waiter AS w ON w.name = lock.name AND {living}
ORDER BY lock.name, w.place, w.owner;
