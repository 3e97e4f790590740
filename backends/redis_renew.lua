-- Starts the TTL of a lease anew if its owner still holds it.
--
-- ARGV   1 owner id   2 ttl in ms
-- gives  'renewed', 'gone' if the lock is free, 'taken' if it is somebody else's

local value = lock_value()
if value ~= ARGV[1] then
  return value and 'taken' or 'gone'
end
redis.call('PEXPIRE', KEYS[3], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 'renewed'
