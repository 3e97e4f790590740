-- Starts the TTL of a lease anew if its owner still holds it and nobody has taken it away. Looks at the keys 1 and 3
-- only, which a lock that is held has: with others a renewal would fail while a cluster moves the slot.
--
-- ARGV   1 owner id   2 ttl in ms
-- gives  'renewed', 'gone' if the lock is free, 'taken' if it is somebody else's, {'revoked', details of the holder}

local owner = ARGV[1]
local value = lock_value()
if value ~= owner then
  return value and 'taken' or 'gone'
end
local details = redis.call('GET', KEYS[3])
if is_revoked(details) then
  return { 'revoked', details }
end
redis.call('PEXPIRE', KEYS[3], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'renewed'
