-- The holders of locks that several may hold, for people. Writes nothing, so that a standby can answer too.
--
-- in     names: of the locks wanted
--        foreign: whether somebody unknown holds a lock
-- gives  a row for each holder, or one of nulls: name of the lock in hexadecimal, owner of the lock, index, token, TTL,
--        seconds left, details, whether it is kept, the operator who took its lease away, whether the lock is held by
--        somebody unknown

SELECT
    encode(lock.name, 'hex'),
    lock.owner,
    h.index,
    h.token,
    h.ttl,
    extract(epoch FROM h.expires_at - clock.now),
    h.details,
    h.kept,
    encode(h.revoked_by, 'hex'),
    {foreign}
FROM (SELECT clock_timestamp() AS now) AS clock
    CROSS JOIN public.distlock_lock AS lock
    LEFT JOIN public.distlock_holder AS h
        ON h.name = lock.name AND lock.owner LIKE 'several-%' AND lock.expires_at > clock.now AND h.expires_at > clock.now
WHERE lock.name IN ({names})
ORDER BY lock.name, h.index;
