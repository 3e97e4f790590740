-- Starts the TTL of a lease anew if its owner still holds it and nobody has taken it away.
--
-- ARGV   1 owner id   2 ttl in ms
-- gives  'renewed', 'gone' if the lock is free, 'taken' if it is somebody else's, {'revoked', by whom}

local owner = ARGV[1]
local value = lock_value()
if value ~= owner then
  return value and 'taken' or 'gone'
end
local by = revoked_by(owner)
if by then
  return { 'revoked', by }
end
redis.call('PEXPIRE', KEYS[3], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'renewed'
