-- Gives up what an owner has, the lock or a place in the queue, and wakes the next if the lock is free now. Touches
-- nothing of anybody else's. A waiter leaves by it too: a try whose answer was lost may have been granted.
--
-- ARGV   1 owner id   2 what channels of waiters begin with
--        3 ms for which the lock is kept, nobody's, 0: it is free
--        4... marks to write: slot, µs since it began, ms for which it is remembered, and so on
-- gives  'left'

local owner, keep = ARGV[1], tonumber(ARGV[3])
local value = lock_value()
if value == owner then
  local now = server_time()
  if ARGV[4] then
    write_marks(ARGV, 4, now)
  end
  redis.call('DEL', KEYS[7])
  if keep > 0 then
    value = KEPT .. owner
    redis.call('SET', KEYS[1], value, 'PX', ARGV[3])
    redis.call('PEXPIRE', KEYS[3], ARGV[3])
  else
    redis.call('DEL', KEYS[1], KEYS[3])
    value = false
  end
end
drop(owner)
if not value then
  wake_first(server_time(), ARGV[2])
end
return 'left'
